// plugfest nccl exec --device-api: the unmodified NCCL 2.28.9 prepares what kernels use, and device_api_program.cc uses
// it as kernels do. Skipped where there is no libnccl.so.2 or no headers of it and of CUDA.
#include "harness/cli/tests/program.h"
#include "harness/plugin/nccl.h"

namespace plugfest::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class DeviceApiTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a library with a sanitizer cannot be preloaded into programs without it";
#elif !defined(PLUGFEST_DEVICE_API_PROGRAM)
    GTEST_SKIP() << "no nccl_device.h and libnccl.so.2 of NCCL 2.28, or no cuda.h, in /usr/local/cuda";
#endif
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
  }

  // Runs ranks that do `what`, and expects that each says so.
  static void expect_ok(const std::string& options, int ranks, const std::string& what) {
    const std::string output = output_of(exec(options + " --ranks " + std::to_string(ranks), what));
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_THAT(output, HasSubstr("[" + std::to_string(rank) + "] " + what + ": ok\n"));
  }

  static Finished exec(const std::string& options, const std::string& what) {
#ifdef PLUGFEST_DEVICE_API_PROGRAM
    // With small messages, NCCL would take a protocol that registers no buffers.
    return plugfest("nccl exec --timeout 100 " + options +
                    " -- env NCCL_PROTO=Simple " PLUGFEST_DEVICE_API_PROGRAM " " + what);
#else
    return {1, options + what};
#endif
  }

  // Options for ranks in one host.
  std::string one_host() const {
    const std::filesystem::path path = folder_ / "host.yaml";
    std::ofstream(path) << "hosts: [a]\nswitches: [{name: s, subnet: 10.0.0.0/24}]\nlinks: [{ends: [a, s]}]\n";
    return "--device-api --topology " + path.string();
  }

 private:
  const ScratchFolder folder_;
};

TEST_F(DeviceApiTest, RanksOfAHostLoadAndStoreInWindowsOfEachOther) {
  for (const int ranks : {2, 8}) expect_ok(one_host(), ranks, "loads-and-stores");
}

TEST_F(DeviceApiTest, MulticastAddressesStandForTheMemoryOfAllRanks) {
  for (const int ranks : {2, 8}) expect_ok(one_host(), ranks, "multicast");
}

TEST_F(DeviceApiTest, AnOrdinaryAccessToAMulticastAddressIsReported) {
  EXPECT_THAT(output_of(exec(one_host() + " --ranks 2", "ordinary-access-to-multicast"), 1),
              ContainsRegex("plugfest: rank 0 on a: an ordinary instruction accessed a multicast address, which only "
                            "multimem instructions can use in .* of .*device_api_program: address 0x"));
}

TEST_F(DeviceApiTest, TheProxyOfNcclCarriesPutsAndSignalsBetweenHosts) {
  for (const int ranks : {2, 4}) expect_ok("--device-api --plugin nccl:IB --topology pair", ranks, "puts");
}

TEST_F(DeviceApiTest, APluginWithGinCarriesPutsAndSignals) {
  expect_ok("--device-api --topology fat-tree:4", 8, "puts");
}

TEST_F(DeviceApiTest, KernelsOfNcclWorkOnWindows) { expect_ok("--device-api --topology pair", 4, "collectives"); }

TEST_F(DeviceApiTest, RanksOfAllHostsLoadAndStoreInAnNvlinkDomain) {
  for (const char* const what : {"loads-and-stores", "multicast", "collectives"})
    expect_ok("--nvlink-domain all --topology star:3", 3, what);
}

}  // namespace
}  // namespace plugfest::cli
