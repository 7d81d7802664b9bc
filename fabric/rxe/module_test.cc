// What is said of kernels without rxe.
#include "fabric/rxe/module.h"

#include <gtest/gtest.h>

#include <fstream>

#include "fabric/system/testing/scratch_folder.h"

namespace plugfest::rxe {
namespace {

namespace fs = std::filesystem;

class Absent : public testing::Test {
 protected:
  Absent() { fs::create_directory(modules_ / "6.1.0"); }

  void list(const char* file, const char* row) { std::ofstream(modules_ / "6.1.0" / file) << row << '\n'; }

  ScratchFolder modules_;
};

constexpr const char* kWayOut =
    ": take --nic vm, which boots a kernel that can; plugfest doctor knows the package that brings it, if one does";

TEST_F(Absent, IsNotWhatModprobeFinds) {
  list("modules.dep", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: kernel/net/ipv4/udp_tunnel.ko");
  EXPECT_EQ(why_absent("6.1.0", modules_), "");
}

TEST_F(Absent, IsNotWhatIsPartOfTheKernel) {
  list("modules.dep", "");
  list("modules.builtin", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko");
  EXPECT_EQ(why_absent("6.1.0", modules_), "");
}

TEST_F(Absent, IsAModuleThatTheKernelWasBuiltWithout) {
  list("modules.dep", "kernel/drivers/net/veth.ko:");
  EXPECT_EQ(why_absent("6.1.0", modules_),
            "kernel 6.1.0 cannot make rxe devices: there is no rdma_rxe in " + (modules_ / "6.1.0").string() + kWayOut);
}

TEST_F(Absent, IsEveryModuleOfAKernelThatHasNone) {
  EXPECT_EQ(why_absent("6.2.0", modules_), "kernel 6.2.0 cannot make rxe devices: there is no folder " +
                                               (modules_ / "6.2.0").string() + ", so none of its modules" + kWayOut);
}

}  // namespace
}  // namespace plugfest::rxe
