// NVIDIA's own IB transport is an oracle for the suite only if it runs on the NIC of this project.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <filesystem>

#include "fabric/topology/graph.h"
#include "harness/bed/library_folder.h"
#include "harness/bed/roce.h"
#include "harness/plugin/library.h"
#include "harness/plugin/nccl.h"

namespace plugfest::conformance {
namespace {

using ::testing::ElementsAre;

/// Why NCCL's own transports are not available; empty when they are.
std::string why_no_oracle() {
  if (plugin::find_nccl().empty()) return "no libnccl.so.2 found: install NCCL or set NCCL_LIBRARY";
  try {
    dlclose(plugin::load_builtin("nccl:IB").library);
    return "";
  } catch (const plugin::LoadError& error) {
    return error.what();
  }
}

TEST(Oracle, IbTransportLoadsOnlyThisProjectsVerbs) {
  if (const std::string reason = why_no_oracle(); !reason.empty()) GTEST_SKIP() << reason;
  bed::TestBed bed = bed::roce_test_bed(topology::named("triangle"), true);
  control::Session session(bed.launcher(), bed.subject("nccl:IB", 0));
  control::Lease lease = session.lease();
  control::Rank rank = lease.rank("a.eth0");
  EXPECT_GT(rank.devices(), 0);
  std::vector<std::string> verbs = rank.process().libraries;
  std::erase_if(verbs, [](const std::string& file) {
    return !std::filesystem::path(file).filename().string().starts_with("libibverbs.");
  });
  EXPECT_THAT(verbs, ElementsAre(std::filesystem::canonical(bed::library_folder() + "/roce/libibverbs.so.1").string()));
}

}  // namespace
}  // namespace plugfest::conformance
