#include "harness/nccl/cuda/multicast.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "harness/nccl/cuda/memory.h"
#include "harness/nccl/cuda/virtual_memory_testing.h"

namespace plugfest::nccl::cuda {
namespace {

using namespace testing_memory;

// A multicast object for two devices of this process, with memory of both.
class MulticastTest : public testing::Test {
 protected:
  MulticastTest() {
    const MulticastProperties properties = {
        .devices = 2, .bytes = kBytes, .handle_types = kDescriptorHandle, .flags = 0};
    EXPECT_EQ(cuMulticastCreate(&object_, &properties), kSuccess);
    address_ = map(object_);
    for (int device : {0, 1}) {
      memory_[device] = create(kBytes, device);
      addresses_[device] = map(memory_[device]);
    }
  }
  ~MulticastTest() override {
    unmap(address_);
    EXPECT_EQ(cuMemRelease(object_), kSuccess);
    for (int device : {0, 1}) {
      unmap(addresses_[device]);
      EXPECT_EQ(cuMemRelease(memory_[device]), kSuccess);
    }
  }

  int members(std::size_t offset, std::size_t bytes = 8) {
    return plugfest_cuda_multicast_members(at(address_ + offset), bytes, members_.data(), 2);
  }
  int* member(int number) { return static_cast<int*>(members_[static_cast<std::size_t>(number)]); }

  Handle object_ = 0;
  Address address_ = 0;
  Handle memory_[2] = {};
  Address addresses_[2] = {};
  std::array<void*, 2> members_{};
};

TEST_F(MulticastTest, AnAddressStandsForTheMemoryOfAllDevices) {
  EXPECT_EQ(members(0), -1) << "no device";
  for (const int device : {1, 0}) EXPECT_EQ(cuMulticastAddDevice(object_, device), kSuccess);
  EXPECT_EQ(cuMulticastBindMem(object_, 0, memory_[0], 0, kBytes, 0), kSuccess);
  EXPECT_EQ(members(0), -1) << "one device has no memory";
  EXPECT_EQ(cuMulticastBindAddr(object_, kGranularity, addresses_[1] + kGranularity, kGranularity, 0), kSuccess);
  EXPECT_EQ(members(0), -1) << "its memory is elsewhere";
  ASSERT_EQ(members(kGranularity + 4), 2);
  *member(0) = 10;
  *member(1) = 11;
  EXPECT_EQ(*at<int>(addresses_[0] + kGranularity + 4), 10) << "in the order of devices";
  EXPECT_EQ(*at<int>(addresses_[1] + kGranularity + 4), 11);
  EXPECT_EQ(members(kBytes - 4, 4), 2);
  EXPECT_EQ(members(kBytes - 4, 8), -1) << "beyond the end";
  EXPECT_EQ(plugfest_cuda_multicast_members(at(addresses_[0]), 8, members_.data(), 2), 0) << "no multicast address";
  EXPECT_EQ(plugfest_cuda_multicast_members(at(address_ + kGranularity), 8, members_.data(), 1), -1);
  EXPECT_EQ(cuMulticastUnbind(object_, 1, kGranularity, kGranularity), kSuccess);
  EXPECT_EQ(members(kGranularity), -1);
  EXPECT_EQ(cuMulticastUnbind(object_, 1, kGranularity, kGranularity), kInvalidValue);
}

TEST_F(MulticastTest, WrongCallsAreRefused) {
  EXPECT_EQ(cuMulticastBindMem(object_, 0, memory_[0], 0, kBytes, 0), kInvalidDevice) << "not added";
  EXPECT_EQ(cuMulticastAddDevice(object_, 2), kInvalidDevice);
  EXPECT_EQ(cuMulticastAddDevice(memory_[0], 0), kInvalidValue) << "no multicast object";
  ASSERT_EQ(cuMulticastAddDevice(object_, 0), kSuccess);
  EXPECT_EQ(cuMulticastAddDevice(object_, 0), kInvalidValue) << "added twice";
  EXPECT_EQ(cuMulticastBindMem(object_, kGranularity, memory_[0], 0, kBytes, 0), kInvalidValue) << "beyond the end";
  EXPECT_EQ(cuMulticastBindMem(object_, 0, object_, 0, kBytes, 0), kInvalidValue);
  ASSERT_EQ(cuMulticastBindMem(object_, 0, memory_[0], 0, kBytes, 0), kSuccess);
  EXPECT_EQ(cuMulticastBindMem(object_, 0, memory_[0], 0, kGranularity, 0), kInvalidValue) << "bound twice";
}

TEST_F(MulticastTest, ProcessesShareAnObject) {
  ASSERT_EQ(cuMulticastAddDevice(object_, 0), kSuccess);
  ASSERT_EQ(cuMulticastBindMem(object_, 0, memory_[0], 0, kBytes, 0), kSuccess);
  const int descriptor = exported(object_);
  std::array<int, 2> pipes[2];
  for (std::array<int, 2>& one : pipes) ASSERT_EQ(::pipe(one.data()), 0);
  char byte = 0;
  const pid_t child = ::fork();
  if (child == 0) {
    // The second device belongs to this process.
    const Handle object = imported(descriptor), memory = create(kBytes, 1);
    const Address address = map(object), own = map(memory);
    const bool is_bound =
        cuMulticastAddDevice(object, 1) == kSuccess && cuMulticastBindMem(object, 0, memory, 0, kBytes, 0) == kSuccess;
    std::array<void*, 2> found{};
    const bool is_found = plugfest_cuda_multicast_members(at(address), 8, found.data(), 2) == 2;
    if (is_found) *static_cast<int*>(found[0]) = 6;
    [[maybe_unused]] ssize_t done = ::write(pipes[0][1], &byte, 1);
    done = ::read(pipes[1][0], &byte, 1);
    ::_exit(is_bound && is_found && *at<int>(own) == 7 ? 0 : 1);
  }
  ASSERT_EQ(::read(pipes[0][0], &byte, 1), 1);
  ASSERT_EQ(members(0), 2);
  EXPECT_EQ(*at<int>(addresses_[0]), 6);
  *member(1) = 7;
  EXPECT_EQ(::write(pipes[1][1], &byte, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(descriptor);
  for (const std::array<int, 2>& one : pipes)
    for (const int end : one) ::close(end);
}

class MulticastDeathTest : public MulticastTest {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer reports the allocations of a signal handler that ends the process";
#endif
  }
};

[[gnu::noinline]] void touch(Address address) { *at<volatile char>(address) = 1; }

TEST_F(MulticastDeathTest, AnOrdinaryAccessToAMulticastAddressIsNamed) {
  EXPECT_EXIT(touch(address_ + 5), testing::ExitedWithCode(kFaultCode),
              "^plugfest-nccl fault: an ordinary instruction accessed a multicast address, which only multimem "
              "instructions can use in .*touch.* of .*nccl_virtual_memory_test: address 0x[0-9a-f]+\n$");
}

}  // namespace
}  // namespace plugfest::nccl::cuda
