// Beds whose switches reduce.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

#include "fabric/reduction/messages.h"
#include "fabric/system/file.h"
#include "fabric/system/testing.h"
#include "harness/bed/nic_kind.h"
#include "harness/bed/reduction.h"
#include "harness/bed/run_bed.h"

namespace plugfest::bed {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// The value of a variable for ranks of `bed`; "" if it is not set.
std::string variable(const TestBed& bed, const std::string& name) {
  for (const auto& [other, value] : bed.subject("nccl:Socket", 0).environment)
    if (other == name) return value.value_or("");
  return "";
}

TEST(ReductionInABed, RanksReachTheManagerOfTheirVariable) {
  TestBed bed = roce_test_bed(topology::named("star:3"), false);
  EXPECT_EQ(variable(bed, reduction::kManagerVariable), "");
  bed.start_reduction();
  EXPECT_THAT(variable(bed, "LD_LIBRARY_PATH"), StartsWith(library_folder() + "/sharp:"));
  const std::string place = variable(bed, reduction::kManagerVariable);
  ASSERT_THAT(place, HasSubstr(":"));
  sockaddr_in manager = {};
  manager.sin_family = AF_INET;
  manager.sin_port = htons(static_cast<std::uint16_t>(std::stoi(place.substr(place.find(':') + 1))));
  ASSERT_EQ(inet_pton(AF_INET, place.substr(0, place.find(':')).c_str(), &manager.sin_addr), 1);
  for (const std::string& host : bed.hosts().ranks) {
    bed.fabric().call(host, [&] {
      const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&manager), sizeof(manager)), 0) << host;
    });
  }
}

TEST(ReductionInABed, NeedsSwitchesOfTheNicInUserSpace) {
  const auto refusal = [](const std::string& nic, const std::string& topology) {
    return error_message([&] { RunBed({.nic = nic, .topology = topology, .reduction_for = "--algo collnet"}); });
  };
  EXPECT_EQ(refusal("roce", "star:3"), "no error");
  EXPECT_EQ(refusal("roce", "triangle"),
            "--algo collnet: triangle has no switches that can reduce: choose a topology with switches of one kind, "
            "such as star:4 or fat-tree:4, whose subnets have free addresses");
  EXPECT_EQ(refusal("loopback", "star:3"), "--algo collnet: with --nic loopback, there are no switches that reduce");
}

}  // namespace
}  // namespace plugfest::bed
