// The compiler checks that each stand-in has the parameters of NVIDIA's function, as the ABI passes them.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "harness/nccl/cuda/abi.h"

namespace plugfest::nccl::cuda {
namespace {

// Both are pointers, or numbers of the same size, or structures of the same size.
template <typename Ours, typename Theirs>
constexpr bool same_kind() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>)
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  else
    return sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Ours> == std::is_class_v<Theirs>;
}

template <typename Ours, typename Theirs>
struct SameAbi : std::false_type {};
template <typename R1, class... P1, typename R2, class... P2>
requires(sizeof...(P1) == sizeof...(P2)) struct SameAbi<R1(P1...), R2(P2...)>
    : std::bool_constant<same_kind<R1, R2>() && (same_kind<P1, P2>() && ...)> {
};

#define FUNCTION(name, ...) static_assert(SameAbi<__VA_ARGS__, decltype(::name)>::value, #name);
#define FUNCTION_12(name, ...)
#include "harness/nccl/cuda/functions.def"
#undef FUNCTION

// cuda.h gives most functions with a suffix their plain name by a macro.
#define FUNCTION(name, ...) static_assert(SameAbi<__VA_ARGS__, decltype(::name)>::value, #name);
#include "harness/nccl/cuda/driver.def"
#undef FUNCTION

static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(sizeof(FunctionAttributes) <= sizeof(cudaFuncAttributes));
static_assert(offsetof(FunctionAttributes, local_bytes) == offsetof(cudaFuncAttributes, localSizeBytes));
static_assert(offsetof(FunctionAttributes, dynamic_shared_bytes) ==
              offsetof(cudaFuncAttributes, maxDynamicSharedSizeBytes));
static_assert(sizeof(PointerAttributes) == sizeof(cudaPointerAttributes));
static_assert(offsetof(PointerAttributes, host_pointer) == offsetof(cudaPointerAttributes, hostPointer));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location.id) == offsetof(CUmemAllocationProp, location.id));
static_assert(offsetof(AllocationProperties, gpu_direct_rdma) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(kDeviceLocation == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(MulticastProperties) == sizeof(CUmulticastObjectProp));
static_assert(offsetof(MulticastProperties, bytes) == offsetof(CUmulticastObjectProp, size));
static_assert(offsetof(MulticastProperties, handle_types) == offsetof(CUmulticastObjectProp, handleTypes));
static_assert(kDescriptorHandle == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kFabricHandle == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(sizeof(CUmemFabricHandle) == 64);
static_assert(kDmaBufHandle == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);

TEST(Signatures, PropertiesOfADeviceAreAtNvidiasOffsets) {
  EXPECT_EQ(sizeof(cudaDeviceProp), kPropertiesBytes);
  EXPECT_EQ(offsetof(cudaDeviceProp, totalGlobalMem), kTotalMemoryAt);
  EXPECT_EQ(offsetof(cudaDeviceProp, warpSize), kWarpSizeAt);
  EXPECT_EQ(offsetof(cudaDeviceProp, maxThreadsPerBlock), kThreadsPerBlockAt);
  EXPECT_EQ(offsetof(cudaDeviceProp, major), kMajorAt);
  EXPECT_EQ(offsetof(cudaDeviceProp, multiProcessorCount), kMultiprocessorsAt);
  EXPECT_EQ(offsetof(cudaDeviceProp, pciBusID), kPciBusAt);
}

TEST(Signatures, ErrorCodesAreNvidias) {
  EXPECT_EQ(static_cast<int>(kMemoryAllocation), cudaErrorMemoryAllocation);
  EXPECT_EQ(static_cast<int>(kInvalidDevice), cudaErrorInvalidDevice);
  EXPECT_EQ(static_cast<int>(kPeerAccessUnsupported), cudaErrorPeerAccessUnsupported);
  EXPECT_EQ(static_cast<int>(kInvalidResourceHandle), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(static_cast<int>(kNotReady), cudaErrorNotReady);
  EXPECT_EQ(static_cast<int>(kNotSupported), cudaErrorNotSupported);
}

}  // namespace
}  // namespace plugfest::nccl::cuda
