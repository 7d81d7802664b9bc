#include "fabric/rxe/rxe.h"

#include <fstream>

#include "fabric/system/testing.h"

namespace plugfest::rxe {
namespace {

namespace fs = std::filesystem;

class MissingModule : public testing::Test {
 protected:
  MissingModule() { fs::create_directory(modules_ / "6.1.0"); }

  void list(const char* file, const char* row) { std::ofstream(modules_ / "6.1.0" / file) << row << '\n'; }

  ScratchFolder modules_;
};

constexpr const char* kRemedy =
    ": use --nic vm, which boots a kernel with the module, or run plugfest doctor, which names the package if one "
    "exists";

TEST_F(MissingModule, IsNotReportedIfModprobeFindsIt) {
  list("modules.dep", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: kernel/net/ipv4/udp_tunnel.ko");
  EXPECT_EQ(explain_missing_module("6.1.0", modules_), "");
}

TEST_F(MissingModule, IsNotReportedIfBuiltIn) {
  list("modules.dep", "");
  list("modules.builtin", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko");
  EXPECT_EQ(explain_missing_module("6.1.0", modules_), "");
}

TEST_F(MissingModule, IsReportedIfTheKernelHasOtherModules) {
  list("modules.dep", "kernel/drivers/net/veth.ko:");
  EXPECT_EQ(
      explain_missing_module("6.1.0", modules_),
      "kernel 6.1.0 has no module for rxe devices: rdma_rxe is not in " + (modules_ / "6.1.0").string() + kRemedy);
}

TEST_F(MissingModule, IsReportedIfTheModuleFolderIsMissing) {
  EXPECT_EQ(explain_missing_module("6.2.0", modules_), "kernel 6.2.0 has no module for rxe devices: the folder " +
                                                           (modules_ / "6.2.0").string() + " does not exist" + kRemedy);
}

}  // namespace
}  // namespace plugfest::rxe
