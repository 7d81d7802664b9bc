// The compiler compares the structures of the device API with NCCL's headers.
#include <gtest/gtest.h>

#include <cstddef>

#include "harness/nccl/device/device_comm_2_28.h"

#if __has_include(<nccl_device.h>)
#include <nccl_device.h>
#include <nccl_device/gin/proxy/gin_proxy_device_host_common.h>
#endif

namespace plugfest::nccl::device::v2_28 {
namespace {

#if defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE == NCCL_VERSION(2, 28, 9)
#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs))
#define SAME_PLACE(ours, member, theirs, their_member) \
  static_assert(offsetof(ours, member) == offsetof(theirs, their_member))

SAME_SIZE(DeviceCommRequirements, ncclDevCommRequirements);
SAME_PLACE(DeviceCommRequirements, rail_gin_barriers, ncclDevCommRequirements, railGinBarrierCount);
SAME_PLACE(DeviceCommRequirements, force_gin, ncclDevCommRequirements, ginForceEnable);
SAME_PLACE(DeviceCommRequirements, gin_contexts, ncclDevCommRequirements, ginContextCount);
SAME_PLACE(DeviceCommRequirements, gin_signals, ncclDevCommRequirements, ginSignalCount);
SAME_SIZE(Window, ncclWindow_vidmem);
SAME_PLACE(Window, gin_offset, ncclWindow_vidmem, ginOffset4K);
SAME_PLACE(Window, gin_handles, ncclWindow_vidmem, ginWins);
SAME_SIZE(DeviceComm, ncclDevComm);
SAME_PLACE(DeviceComm, gin_contexts, ncclDevComm, ginContextCount);
SAME_PLACE(DeviceComm, gin_types, ncclDevComm, ginTypes);
SAME_PLACE(DeviceComm, gin_handles, ncclDevComm, ginHandles);
SAME_PLACE(DeviceComm, first_signal, ncclDevComm, ginSignalBase);
SAME_SIZE(GinDescriptor, ncclGinProxyGfd_t);
SAME_SIZE(GinQueues, ncclGinProxyGpuCtx_t);
SAME_PLACE(GinQueues, descriptors, ncclGinProxyGpuCtx_t, queues);
SAME_PLACE(GinQueues, consumed, ncclGinProxyGpuCtx_t, cis);
SAME_PLACE(GinQueues, signals, ncclGinProxyGpuCtx_t, signals);
static_assert(kMaxGinContexts == NCCL_GIN_MAX_CONTEXTS && kGinProxy == NCCL_NET_DEVICE_GIN_PROXY &&
              kSymmetricWindow == NCCL_WIN_COLL_SYMMETRIC);

TEST(DeviceComm, DescriptorsHaveTheWordsOfNccl) {
  ncclGinProxyGfd_t descriptor{};
  descriptor.qword[ncclGinProxyGfdHeader].header.op = ncclGinProxyOpPut | ncclGinProxyOpWithSignalInc;
  descriptor.qword[ncclGinProxyGfdHeader].header.size = 0x700;
  EXPECT_EQ(descriptor.qword[0].raw, 0x700u << 7 | 9 << 1);
  descriptor.qword[ncclGinProxyGfdCompletion].completion.signalId = 0x105;
  descriptor.qword[ncclGinProxyGfdCompletion].completion.signalValLow = 1;
  EXPECT_EQ(descriptor.qword[5].raw, std::uint64_t{1} << 40 | std::uint64_t{0x105} << 24);
  EXPECT_EQ(ncclGinProxyGfdSrcOff, 1);
  EXPECT_EQ(ncclGinProxyGfdDstHandle, 4);
}
#else
TEST(DeviceComm, DescriptorsHaveTheWordsOfNccl) { GTEST_SKIP() << "no NCCL 2.28.9 headers"; }
#endif

}  // namespace
}  // namespace plugfest::nccl::device::v2_28
