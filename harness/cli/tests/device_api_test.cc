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
    GTEST_SKIP() << "no nccl_device.h, cuda.h and libnccl.so.2 of NCCL 2.28 or later in /usr/local/cuda";
#endif
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
  }

  // Runs the ranks; `what`: what they do.
  static Finished exec(const std::string& options, const std::string& what) {
#ifdef PLUGFEST_DEVICE_API_PROGRAM
    return plugfest("nccl exec --device-api --timeout 100 " + options + " -- " PLUGFEST_DEVICE_API_PROGRAM " " + what);
#else
    return {};
#endif
  }
};

TEST_F(DeviceApiTest, RanksOfAHostLoadAndStoreInWindowsOfEachOther) {
  for (const char* const ranks : {"2", "8"})
    EXPECT_THAT(output_of(exec(std::string("--topology star:1 --ranks ") + ranks, "loads-and-stores")),
                HasSubstr("[1] loads-and-stores: ok\n"));
}

TEST_F(DeviceApiTest, MulticastAddressesStandForTheMemoryOfAllRanks) {
  for (const char* const ranks : {"2", "8"})
    EXPECT_THAT(output_of(exec(std::string("--topology star:1 --ranks ") + ranks, "multicast")),
                HasSubstr("[1] multicast: ok\n"));
}

TEST_F(DeviceApiTest, AnOrdinaryAccessToAMulticastAddressIsReported) {
  EXPECT_THAT(output_of(exec("--topology star:1 --ranks 2", "ordinary-access-to-multicast"), 1),
              ContainsRegex("plugfest: rank 0 on .*: an ordinary instruction accessed a multicast address, which only "
                            "multimem instructions can use in .* of .*device_api_program: address 0x"));
}

TEST_F(DeviceApiTest, TheProxyOfNcclCarriesPutsAndSignalsBetweenHosts) {
  for (const char* const ranks : {"2", "4"})
    EXPECT_THAT(output_of(exec(std::string("--plugin nccl:IB --topology star:2 --ranks ") + ranks, "puts")),
                HasSubstr("[1] puts: ok\n"));
}

}  // namespace
}  // namespace plugfest::cli
