// Runs on the kernel's NIC, in a virtual machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "fabric/system/testing/scratch_folder.h"
#include "test_paths.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class KernelNic : public testing::Test {
 protected:
  int run(const std::string& command) {
    const int status = std::system((command + " >" + file("output") + " 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string content(const std::string& name) const {
    std::ifstream stream(file(name));
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  ScratchFolder folder_;
};

TEST_F(KernelNic, PassesTheSmokeRulesInAGuestWhichSaysWhereItRan) {
  EXPECT_EQ(run(PLUGFEST_PROGRAM " run --nic vm --rule @smoke --json " + file("r.json") + " --junit " + file("r.xml")),
            0)
      << content("output");
  EXPECT_THAT(content("output"), HasSubstr("NIC vm (all hosts in one namespace), Linux 6."));
  const auto json = nlohmann::json::parse(content("r.json"));
  EXPECT_EQ(json["environment"]["nic"], "vm");
  EXPECT_EQ(json["environment"]["topology"], "triangle");
  EXPECT_EQ(json["environment"]["layout"], "all hosts in one namespace");
  EXPECT_THAT(json["environment"]["kernel"], StartsWith("Linux "));
  EXPECT_EQ(json["summary"]["pass"], 21);
  EXPECT_THAT(content("r.xml"), HasSubstr("<property name=\"nic\" value=\"vm\"/>"));
}

// rxe devices that somebody else made stand for hardware. Where they are none of ours to make, here, so is the test.
TEST_F(KernelNic, RulesRunOnDevicesThatTheMachineHas) {
  const std::string script =
      "ip link add v0 type veth peer name v1 && ip address add 10.0.0.1/24 dev v0 && ip link set v0 up && "
      "ip link set v1 up && rdma link add rxe0 type rxe netdev v0 && exec " PLUGFEST_PROGRAM
      " run --nic system --rule DP-04 --rule XF-01 --timeout-scale 6";
  EXPECT_EQ(
      run(PLUGFEST_GUEST_RUN " --module rdma_rxe --module crc32_generic --module ib_uverbs --module veth /bin/sh -c '" +
          script + "'"),
      0)
      << content("output");
  EXPECT_THAT(content("output"), HasSubstr("NIC system (ranks on this machine)"));
  EXPECT_THAT(content("output"), HasSubstr("2 pass"));
}

TEST_F(KernelNic, WithoutADeviceThereIsNothingToJudgeOn) {
  if (fs::exists("/sys/class/infiniband") && !fs::is_empty("/sys/class/infiniband")) {
    GTEST_SKIP() << "this machine has RDMA devices";
  }
  EXPECT_EQ(run(PLUGFEST_PROGRAM " run --nic system --rule DP-04"), 2);
  EXPECT_THAT(content("output"), StartsWith("plugfest: --nic system: this machine has no RDMA device"));
}

TEST_F(KernelNic, WithoutItsModuleTheUserIsToldWhatToDo) {
  if (fs::exists("/sys/module/rdma_rxe")) GTEST_SKIP() << "this kernel has rdma_rxe";
  EXPECT_EQ(run(PLUGFEST_PROGRAM " run --nic rxe --rule DP-04"), 2);
  EXPECT_THAT(content("output"), StartsWith("plugfest: "));
  EXPECT_THAT(content("output"), HasSubstr("take --nic vm"));  // to root: the module; to others: root
}

}  // namespace
}  // namespace plugfest::cli
