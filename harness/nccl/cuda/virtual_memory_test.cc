#include "harness/nccl/cuda/virtual_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "fabric/system/file.h"
#include "harness/nccl/cuda/virtual_memory_testing.h"

namespace plugfest::nccl::cuda {
namespace {

using namespace testing_memory;

// The code of an attempt to import a descriptor.
int import_code(int descriptor) {
  Handle handle = 0;
  return cuMemImportFromShareableHandle(&handle, at<void>(static_cast<Address>(descriptor)), kDescriptorHandle);
}

TEST(VirtualMemory, MemoryIsSeenAtAllAddressesWhereItIsMapped) {
  const Handle handle = create();
  const Address one = map(handle), two = map(handle);
  EXPECT_EQ(*at(one), 0);
  at(one)[kBytes - 1] = 5;
  EXPECT_EQ(at(two)[kBytes - 1], 5);
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
  EXPECT_EQ(at(two)[kBytes - 1], 5) << "a mapping keeps the memory";
  unmap(one);
  unmap(two);
  EXPECT_EQ(cuMemRelease(handle), kInvalidValue) << "released twice";
}

TEST(VirtualMemory, AMappingGivesItsHandleBack) {
  const Handle handle = create();
  const Address address = map(handle);
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
  Handle retained = 0;
  EXPECT_EQ(cuMemRetainAllocationHandle(&retained, at<void>(address + 4096)), kSuccess);
  EXPECT_EQ(retained, handle);
  AllocationProperties properties{};
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&properties, retained), kSuccess);
  EXPECT_EQ(properties.location, kOnDevice0.location);
  EXPECT_EQ(cuMemRelease(retained), kSuccess);
  unmap(address);
  void* other = nullptr;
  ASSERT_EQ(cudaMalloc(&other, 100), kSuccess);
  EXPECT_EQ(cuMemRetainAllocationHandle(&retained, other), kInvalidValue) << "memory of cudaMalloc has no handle";
  EXPECT_EQ(cudaFree(other), kSuccess);
}

TEST(VirtualMemory, AttributesAreThoseOfTheMapping) {
  const Handle handle = create(kBytes, 1);
  const Address address = reserve();
  ASSERT_EQ(cuMemMap(address + kGranularity, kGranularity, kGranularity, handle, 0), kSuccess);
  Address base = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, &bytes, address + kGranularity + 17), kSuccess);
  EXPECT_EQ(base, address + kGranularity);
  EXPECT_EQ(bytes, kGranularity);
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, &bytes, address), kInvalidValue) << "nothing is mapped there";
  int device = 7;
  EXPECT_EQ(cuPointerGetAttribute(&device, 9, address + kGranularity), kSuccess);
  EXPECT_EQ(device, 1);
  PointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, at(address + kGranularity)), kSuccess);
  EXPECT_EQ(attributes.type, 2);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
  EXPECT_EQ(cuMemUnmap(address + kGranularity, kGranularity), kSuccess);
  EXPECT_EQ(cuMemAddressFree(address, kBytes), kSuccess);
}

TEST(VirtualMemory, ReservationsLargerThanTheMachineAreAligned) {
  constexpr std::size_t kStride = std::size_t{80} << 30;
  const Address flat = reserve(8 * kStride, std::size_t{1} << 30);
  EXPECT_EQ(flat % (std::size_t{1} << 30), 0u);
  const Handle handle = create();
  for (const Address address : {flat, flat + 7 * kStride}) {
    ASSERT_EQ(cuMemMap(address, kBytes, 0, handle, 0), kSuccess);
    ASSERT_EQ(cuMemSetAccess(address, kBytes, &kReadAndWrite, 1), kSuccess);
  }
  *at(flat) = 3;
  EXPECT_EQ(*at(flat + 7 * kStride), 3);
  EXPECT_EQ(cuMemAddressFree(flat, 8 * kStride), kInvalidValue) << "memory is mapped in it";
  EXPECT_EQ(cuMemUnmap(flat, 8 * kStride), kSuccess) << "all mappings at once";
  EXPECT_EQ(cuMemUnmap(flat, 8 * kStride), kInvalidValue);
  EXPECT_EQ(cuMemAddressFree(flat, 8 * kStride), kSuccess);
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
  Address none = 0;
  EXPECT_EQ(cuMemAddressReserve(&none, std::size_t{1} << 60, 0, 0, 0), kMemoryAllocation);
}

TEST(VirtualMemory, WrongRangesAreRefused) {
  Handle handle = create();
  const Address address = reserve(2 * kBytes);
  EXPECT_EQ(cuMemMap(address, 4096, 0, handle, 0), kInvalidValue) << "below the granularity";
  EXPECT_EQ(cuMemMap(address, 2 * kBytes, 0, handle, 0), kInvalidValue) << "larger than the memory";
  EXPECT_EQ(cuMemMap(address + 2 * kBytes, kBytes, 0, handle, 0), kInvalidValue) << "not reserved";
  EXPECT_EQ(cuMemMap(address + kBytes + kGranularity, kBytes, 0, handle, 0), kInvalidValue) << "beyond the range";
  ASSERT_EQ(cuMemMap(address, kBytes, 0, handle, 0), kSuccess);
  EXPECT_EQ(cuMemMap(address + kGranularity, kBytes, 0, handle, 0), kInvalidValue) << "something is mapped there";
  EXPECT_EQ(cuMemUnmap(address, kGranularity), kInvalidValue) << "a part of a mapping";
  EXPECT_EQ(cuMemSetAccess(address, 2 * kBytes, &kReadAndWrite, 1), kInvalidValue) << "half is not mapped";
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
  EXPECT_EQ(cuMemUnmap(address, kBytes), kSuccess);
  EXPECT_EQ(cuMemAddressFree(address, kBytes), kInvalidValue) << "a part of a reservation";
  EXPECT_EQ(cuMemAddressFree(address, 2 * kBytes), kSuccess);
  EXPECT_EQ(cuMemCreate(&handle, 100, &kOnDevice0, 0), kInvalidValue);
  AllocationProperties properties = kOnDevice0;
  properties.location.id = 2;
  EXPECT_EQ(cuMemCreate(&handle, kBytes, &properties, 0), kInvalidDevice);
}

TEST(VirtualMemory, ADescriptorCarriesTheMemory) {
  const Handle handle = create();
  const Address one = map(handle);
  *at(one) = 9;
  const int descriptor = exported(handle);
  const Handle other = imported(descriptor);
  ::close(descriptor);
  const Address two = map(other);
  EXPECT_EQ(*at(two), 9);
  AllocationProperties properties{};
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&properties, other), kSuccess);
  EXPECT_EQ(properties.handle_types, kOnDevice0.handle_types);
  for (const Handle one_handle : {handle, other}) EXPECT_EQ(cuMemRelease(one_handle), kSuccess);
  unmap(one);
  unmap(two);
  const Descriptor unknown(::memfd_create("other", MFD_CLOEXEC));
  EXPECT_EQ(import_code(unknown.get()), kInvalidValue);
  ASSERT_EQ(::ftruncate(unknown.get(), 8192), 0);
  EXPECT_EQ(import_code(unknown.get()), kInvalidValue);
  EXPECT_EQ(import_code(-1), kInvalidValue);
}

TEST(VirtualMemory, AFabricHandleIsValidInOtherProcesses) {
  const Handle handle = create();
  const Address address = map(handle);
  std::array<char, 64> fabric{};
  ASSERT_EQ(cuMemExportToShareableHandle(fabric.data(), handle, kFabricHandle, 0), kSuccess);
  const pid_t child = ::fork();
  if (child == 0) {
    Handle other = 0;
    if (cuMemImportFromShareableHandle(&other, fabric.data(), kFabricHandle) != kSuccess) ::_exit(1);
    *at(map(other)) = 8;
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*at(address), 8);
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
  unmap(address);
  Handle other = 0;
  EXPECT_EQ(cuMemImportFromShareableHandle(&other, fabric.data(), kFabricHandle), kInvalidValue)
      << "the memory is gone";
  fabric = {};
  EXPECT_EQ(cuMemImportFromShareableHandle(&other, fabric.data(), kFabricHandle), kInvalidValue);
}

TEST(VirtualMemory, OnlyWhatTheProgramAskedForIsExported) {
  AllocationProperties properties = kOnDevice0;
  properties.handle_types = 0;
  Handle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kBytes, &properties, 0), kSuccess);
  int descriptor = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&descriptor, handle, kDescriptorHandle, 0), kInvalidValue);
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
}

TEST(VirtualMemory, ADmaBufBeginsAtItsAddress) {
  const Handle handle = create();
  const Address address = map(handle);
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 10'000), kSuccess);
  for (const Address begin : {address + kGranularity, reinterpret_cast<Address>(device) + 4096}) {
    std::strcpy(at(begin), "here");
    int descriptor = -1;
    ASSERT_EQ(cuMemGetHandleForAddressRange(&descriptor, begin, 4096, kDmaBufHandle, 0), kSuccess);
    std::array<char, 5> text{};
    EXPECT_EQ(::read(descriptor, text.data(), text.size()), 5);
    EXPECT_STREQ(text.data(), "here");
    ::close(descriptor);
    EXPECT_EQ(cuMemGetHandleForAddressRange(&descriptor, begin, kBytes, kDmaBufHandle, 0), kInvalidValue);
  }
  EXPECT_EQ(cudaFree(device), kSuccess);
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
  unmap(address);
}

class ReservedMemoryDeathTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer reports the allocations of a signal handler that ends the process";
#endif
  }
};

[[gnu::noinline]] void touch(Address address) { *at<volatile char>(address) = 1; }

TEST_F(ReservedMemoryDeathTest, AnAccessOutsideOfMappingsIsNamed) {
  EXPECT_EXIT(touch(reserve()), testing::ExitedWithCode(kFaultCode),
              "fault: an access to an address range without memory in .*touch.* of .*nccl_virtual_memory_test");
  EXPECT_EXIT(
      {
        const Address address = reserve();
        cuMemMap(address, kBytes, 0, create(), 0);
        touch(address);
      },
      testing::ExitedWithCode(kFaultCode), "fault: an access to memory before cuMemSetAccess in .*touch");
  const AccessDescription read = {{1, 0}, 1};
  EXPECT_EXIT(
      {
        const Address address = map(create());
        cuMemSetAccess(address, kBytes, &read, 1);
        touch(address);
      },
      testing::ExitedWithCode(kFaultCode), "fault: a write to memory that is read-only in .*touch");
}

}  // namespace
}  // namespace plugfest::nccl::cuda
