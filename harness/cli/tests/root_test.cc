// plugfest run as root and as an ordinary user: sandboxes and NIC kinds.

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

TEST(RootRun, PassesTheSmokeRules) { EXPECT_THAT(output_of(plugfest("run --rule @smoke")), HasSubstr("21 pass")); }

TEST(RootRun, SuggestsAVirtualMachineWithoutRxe) {
  if (fs::exists("/sys/module/rdma_rxe")) GTEST_SKIP() << "this kernel has rdma_rxe";
  // The error names the missing module or, for ordinary users, the missing privilege. Both suggest --nic vm.
  EXPECT_THAT(error_of("run --nic rxe --rule DP-04"), HasSubstr("use --nic vm"));
}

TEST(RootRun, ReportsAMachineWithoutDevices) {
  if (fs::exists("/sys/class/infiniband") && !fs::is_empty("/sys/class/infiniband"))
    GTEST_SKIP() << "this machine has RDMA devices";
  EXPECT_THAT(error_of("run --nic system --rule DP-04"),
              StartsWith("plugfest: --nic system: this machine has no RDMA device"));
}

}  // namespace
}  // namespace plugfest::cli
