// Registrations that share regions of the NIC, and GPU memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "plugins/mesh/device/gpu.h"
#include "plugins/mesh/testing/net_fixture.h"
#include "plugins/mesh/transfer/recv_comm.h"
#include "plugins/mesh/transfer/send_comm.h"

namespace mesh {
namespace {

class MemoryTest : public NetTest {
 protected:
  ~MemoryTest() override { unsetenv("NCCL_MESH_CUDA"); }

  // Connects twice, and returns the receive comms.
  std::pair<void*, void*> connect_twice() {
    connect();
    void* first = receive_;
    connect();
    return {first, receive_};
  }
  void* register_on(void* comm, std::size_t offset, std::size_t size, int type = abi::kPointerHost) {
    void* handle = nullptr;
    EXPECT_EQ(net::reg_mr(comm, bytes_.data() + offset, size, type, &handle), Result::kSuccess);
    return handle;
  }
  // Receives 100 bytes into the start of `bytes_`.
  void* receive_on(void* comm, void* handle) {
    void *data = bytes_.data(), *request = kStale;
    std::size_t size = 100;
    int tag = 0;
    EXPECT_EQ(net::irecv(comm, 1, &data, &size, &tag, &handle, nullptr, &request), Result::kSuccess);
    return request;
  }
  void end(void* comm, void* handle) { EXPECT_EQ(net::dereg_mr(comm, handle), Result::kSuccess); }
  // Number of regions that `make` registers.
  template <typename Make>
  std::size_t new_regions(const Make& make) {
    const std::size_t before = fake::registered_regions();
    make();
    return fake::registered_regions() - before;
  }

  std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(1 << 16);
};

TEST_F(MemoryTest, CommsShareRegionsOfLiveRegistrations) {
  const auto comms = connect_twice();
  void *first = comms.first, *second = comms.second;
  void *whole = nullptr, *same = nullptr, *part = nullptr;
  EXPECT_EQ(new_regions([&] { whole = register_on(first, 0, 60000); }), 1u);
  EXPECT_EQ(new_regions([&] { same = register_on(second, 0, 60000); }), 0u);
  EXPECT_EQ(new_regions([&] { part = register_on(second, 1000, 500); }), 0u);
  for (const auto& [offset, size] : {std::pair<std::size_t, std::size_t>{1, 60000}, {59999, 2}, {60000, 1}}) {
    EXPECT_EQ(new_regions([&, offset = offset, size = size] { end(second, register_on(second, offset, size)); }), 1u)
        << offset;
  }
  // A send comm has other access to its memory.
  EXPECT_EQ(new_regions([&] { end(send_, register_on(send_, 0, 60000)); }), 1u);
  end(first, whole);
  EXPECT_EQ(new_regions([&] { end(first, register_on(first, 0, 60000)); }), 0u);  // `same` is alive
  end(second, same);
  // Only the part is registered now. Its region covers more memory, which may have been unmapped since.
  EXPECT_EQ(new_regions([&] { end(first, register_on(first, 0, 60000)); }), 1u);
  EXPECT_EQ(new_regions([&] { end(first, register_on(first, 1500, 1)); }), 1u);
  EXPECT_EQ(new_regions([&] { end(first, register_on(first, 1499, 1)); }), 0u);
  end(second, part);
  EXPECT_EQ(new_regions([&] { end(first, register_on(first, 1499, 1)); }), 1u);
}

TEST_F(MemoryTest, ARegionLastsUntilItsLastRegistrationEnds) {
  const auto [first, second] = connect_twice();
  const std::size_t objects = fake::open_objects();
  void *whole = register_on(first, 0, 100), *other = register_on(second, 0, 100);
  EXPECT_EQ(fake::open_objects(), objects + 1);
  end(first, whole);
  EXPECT_EQ(fake::open_objects(), objects + 1);
  Memory from(send_, 100, 3);
  void* request = receive_on(second, other);
  EXPECT_EQ(sizes_of(post_send(from, 0)), Sizes{100});
  EXPECT_EQ(sizes_of(request), Sizes{100});
  EXPECT_EQ(bytes_[99], 3);
  end(second, other);
  EXPECT_EQ(fake::open_objects(), objects + 1);  // the registration of `from`
}

// The region stays registered for the other comm, so the peer could write to it.
TEST_F(MemoryTest, SharedMemoryThatATransferUsesIsNotWrittenAfterItsEnd) {
  const auto [first, second] = connect_twice();
  void *kept = register_on(first, 0, 100), *ended = register_on(second, 0, 100);
  void* request = receive_on(second, ended);
  {
    Memory from(send_, 100, 3);
    EXPECT_EQ(post_send(from, 1), nullptr);  // takes the announcement
    end(second, ended);
    EXPECT_EQ(failure_of(post_send(from, 0)), Result::kRemoteError);
  }
  EXPECT_EQ(bytes_[0], 0);
  EXPECT_EQ(test_result(request), Result::kInternalError);
  end(first, kept);
}

TEST_F(MemoryTest, OneOfTwoRegistrationsOnACommMayEndDuringATransfer) {
  connect();
  void *kept = register_on(receive_, 0, 100), *ended = register_on(receive_, 0, 100);
  void* request = receive_on(receive_, kept);
  end(receive_, ended);
  Memory from(send_, 100, 3);
  EXPECT_EQ(sizes_of(post_send(from, 0)), Sizes{100});
  EXPECT_EQ(sizes_of(request), Sizes{100});
  end(receive_, kept);
}

// No NIC reads the memory, so only the plugin can notice that it is no longer registered.
TEST_F(MemoryTest, ARelayedSendFailsIfItsMemoryIsDeregistered) {
  init();
  const std::vector<LaneStart> starts = {{find_devices({}).front(), kRelayed}};
  SendComm sender(starts);
  RecvComm receiver(starts, 0);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  sender.start(receiver.endpoints(), {});
  sender.monitor(PeerLink(Socket(ends[0])), {});
  receiver.start(sender.endpoints(), {});
  receiver.monitor(PeerLink(Socket(ends[1])), {});

  std::vector<std::uint8_t> from(4 << 20), to(4 << 20);  // more than the socket's buffer
  Registration* source = sender.add_memory({.data = from.data(), .bytes = from.size()});
  void* target = receiver.add_memory({.data = to.data(), .bytes = to.size()});
  void *data = to.data(), *received = nullptr, *sent = nullptr;
  const std::size_t size = to.size();
  const int tag = 0;
  ASSERT_EQ(receiver.receive(1, &data, &size, &tag, &target, nullptr, &received), Result::kSuccess);
  while (sent == nullptr)
    ASSERT_EQ(sender.send(from.data(), from.size(), tag, source, nullptr, &sent), Result::kSuccess);
  sender.remove_memory(source);
  int done = 0;
  Result result = Result::kSuccess;
  while (done == 0 && result == Result::kSuccess) {
    ASSERT_EQ(receiver.check(), Result::kSuccess);
    result = sender.test(*RequestId::from(sent), &done, nullptr);
  }
  EXPECT_EQ(result, Result::kSystemError);
  EXPECT_THAT(g_warnings.back(), ::testing::HasSubstr("the usual cause is memory that was deregistered too early"));
}

int pointer_support() {
  abi::newest::Properties properties = {};
  EXPECT_EQ(net::get_properties(0, &properties), Result::kSuccess);
  EXPECT_EQ(properties.regIsGlobal, 1);
  return properties.ptrSupport;
}

TEST_F(MemoryTest, GpuMemoryNeedsItsSetting) {
  init();
  EXPECT_EQ(pointer_support(), abi::kPointerHost);
  connect();
  void* handle = kStale;
  EXPECT_EQ(net::reg_mr(receive_, bytes_.data(), 8, abi::kPointerCuda, &handle), Result::kInvalidArgument);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: regMr: memory type 2 is not supported: only those that ptrSupport names are");
}

TEST_F(MemoryTest, FlushReadsThroughTheNic) {
  setenv("NCCL_MESH_CUDA", "1", 1);
  connect();
  EXPECT_EQ(pointer_support(), abi::kPointerHost | abi::kPointerCuda);
  void* handle = register_on(receive_, 0, 100, abi::kPointerCuda);
  std::vector<void*> data = {bytes_.data(), bytes_.data() + 50}, handles = {handle, handle};
  std::vector<int> sizes = {10, 0};
  std::vector<void*> requests;
  for (int i = 0; i < 32; ++i) {
    requests.push_back(nullptr);
    ASSERT_EQ(net::iflush(receive_, 2, data.data(), sizes.data(), handles.data(), &requests.back()), Result::kSuccess);
    ASSERT_NE(requests.back(), nullptr);
  }
  EXPECT_EQ(fake::nic().reads, 32);
  void* request = kStale;
  EXPECT_EQ(net::iflush(receive_, 2, data.data(), sizes.data(), handles.data(), &request), Result::kInvalidUsage);
  EXPECT_EQ(request, nullptr);
  for (void* flush : requests) {
    int done = 1;
    while (done != 1 || net::test(flush, &done, nullptr) != Result::kSuccess || done != 1) {
    }
    EXPECT_EQ(test_result(flush), Result::kInvalidArgument);  // the request is no longer outstanding
  }
  EXPECT_EQ(bytes_, std::vector<std::uint8_t>(bytes_.size()));
  // Nothing was received into GPU memory.
  sizes = {0, 0};
  EXPECT_EQ(net::iflush(receive_, 2, data.data(), sizes.data(), handles.data(), &request), Result::kSuccess);
  EXPECT_EQ(request, nullptr);
  end(receive_, handle);
  handle = handles[0] = register_on(receive_, 0, 100);
  sizes = {10};
  EXPECT_EQ(net::iflush(receive_, 1, data.data(), sizes.data(), handles.data(), &request), Result::kSuccess);
  EXPECT_EQ(request, nullptr);
  end(receive_, handle);
  EXPECT_EQ(fake::nic().reads, 32);
}

TEST_F(MemoryTest, TheCpuDoesNotReadGpuMemoryThatIsSent) {
  setenv("NCCL_MESH_CUDA", "1", 1);
  connect();
  Memory to(receive_, 8);
  for (const int type : {abi::kPointerHost, abi::kPointerCuda}) {
    fake::nic().inline_writes = 0;
    void *handle = register_on(send_, 0, 8, type), *sent = kStale;
    void* received = post_receive({&to}, {0});
    ASSERT_EQ(net::isend(send_, bytes_.data(), 8, 0, handle, nullptr, &sent), Result::kSuccess);
    EXPECT_EQ(sizes_of(sent), Sizes{8});
    EXPECT_EQ(sizes_of(received), Sizes{8});
    EXPECT_EQ(fake::nic().inline_writes, type == abi::kPointerHost ? 1 : 0);
    end(send_, handle);
  }
}

TEST_F(MemoryTest, AFailedFlushBreaksTheComm) {
  setenv("NCCL_MESH_CUDA", "1", 1);
  connect();
  void* handle = register_on(receive_, 0, 100, abi::kPointerCuda);
  fake::nic().lose_packets = true;
  void *data = bytes_.data(), *request = nullptr;
  int size = 10;
  ASSERT_EQ(net::iflush(receive_, 1, &data, &size, &handle, &request), Result::kSuccess);
  EXPECT_EQ(failure_of(request), Result::kSystemError);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: a flush of GPU memory through fake0 failed: a status");
  end(receive_, handle);
}

TEST_F(MemoryTest, AFlushWhoseCompletionsCannotBePolledBreaksTheComm) {
  setenv("NCCL_MESH_CUDA", "1", 1);
  connect();
  void* handle = register_on(receive_, 0, 100, abi::kPointerCuda);
  fake::nic().reads_break_queues = true;
  void *data = bytes_.data(), *request = nullptr;
  int size = 10;
  ASSERT_EQ(net::iflush(receive_, 1, &data, &size, &handle, &request), Result::kSuccess);
  EXPECT_EQ(failure_of(request), Result::kSystemError);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: cannot poll the flushes of fake0");
  end(receive_, handle);
}

TEST_F(MemoryTest, DmaBufRegistersWhatItsDescriptorNames) {
  fake::nic().takes_dma_buf = true;
  connect();
  void* handle = kStale;
  EXPECT_EQ(net::reg_mr_dma_buf(receive_, bytes_.data(), 100, abi::kPointerCuda, 0, -1, &handle),
            Result::kInvalidArgument);
  EXPECT_EQ(handle, nullptr);
  ASSERT_EQ(net::reg_mr_dma_buf(receive_, bytes_.data(), 100, abi::kPointerCuda, 0, 0, &handle), Result::kSuccess);
  void* request = receive_on(receive_, handle);
  Memory from(send_, 100, 3);
  EXPECT_EQ(sizes_of(post_send(from, 0)), Sizes{100});
  EXPECT_EQ(sizes_of(request), Sizes{100});
  end(receive_, handle);
  fake::nic().takes_dma_buf = false;
  EXPECT_EQ(net::reg_mr_dma_buf(receive_, bytes_.data(), 100, abi::kPointerCuda, 0, 0, &handle), Result::kSystemError);
}

// A fake CUDA driver.
struct Driver {
  inline static int gpus, dma_buf, export_result;
  inline static std::pair<unsigned long long, std::size_t> exported;

  static int get_count(int* count) { return *count = gpus, 0; }
  static int get_device(int* device, int index) { return *device = index, 0; }
  static int get_attribute(int* value, int, int) { return *value = dma_buf, 0; }
  static int export_range(void* descriptor, unsigned long long begin, std::size_t bytes, int, unsigned long long) {
    exported = {begin, bytes};
    return *static_cast<int*>(descriptor) = 77, export_result;
  }
  static void* symbol(const char* name) {
    const std::string_view which = name;
    if (which == "cuDeviceGetCount") return reinterpret_cast<void*>(get_count);
    if (which == "cuDeviceGet") return reinterpret_cast<void*>(get_device);
    if (which == "cuDeviceGetAttribute") return reinterpret_cast<void*>(get_attribute);
    return which == "cuMemGetHandleForAddressRange" ? reinterpret_cast<void*>(export_range) : nullptr;
  }
};

TEST_F(MemoryTest, GpuAccessNeedsDmaBufOnAllSides) {
  init();  // sets the logger
  const DeviceList devices = find_devices({});
  using Access = Gpu::Access;
  const auto access = [&](const Settings& settings = {}) { return Gpu(devices, settings, Driver::symbol).access(); };
  Driver::gpus = Driver::dma_buf = 1;
  Driver::export_result = 0;
  EXPECT_EQ(access(), Access::kNone);
  EXPECT_EQ(g_lines.back(), "NET/mesh: GPU memory is copied through host memory: fake0 does not register DMA-BUFs");
  fake::nic().takes_dma_buf = true;
  EXPECT_EQ(access(), Access::kDmaBuf);
  Settings settings;
  settings.cuda = 1;
  EXPECT_EQ(access(settings), Access::kByAddress);
  settings.relay_secret = "a secret of twenty c";
  EXPECT_EQ(access(settings), Access::kNone);
  settings = {};
  settings.cuda = 0;
  EXPECT_EQ(access(settings), Access::kNone);
  EXPECT_EQ(Gpu(devices, {}, {}).access(), Access::kNone);
  EXPECT_EQ(Gpu(devices, {}, [](const char*) -> void* { return nullptr; }).access(), Access::kNone);
  EXPECT_EQ(g_lines.back(), "NET/mesh: GPU memory is copied through host memory: the CUDA driver is older than 11.7");
  Driver::dma_buf = 0;
  EXPECT_EQ(access(), Access::kNone);
  EXPECT_EQ(g_lines.back(), "NET/mesh: GPU memory is copied through host memory: a GPU does not export DMA-BUFs");
  Driver::dma_buf = 1;
  Driver::gpus = 0;
  EXPECT_EQ(access(), Access::kNone);
  EXPECT_EQ(g_lines.back(), "NET/mesh: GPU memory is copied through host memory: the process has no GPU");
}

TEST_F(MemoryTest, WholePagesAreExported) {
  fake::nic().takes_dma_buf = true;
  init();
  Driver::gpus = Driver::dma_buf = 1;
  Driver::export_result = 0;
  const Gpu gpu(find_devices({}), {}, Driver::symbol);
  EXPECT_EQ(gpu.pointer_support(), abi::kPointerHost | abi::kPointerCuda | abi::kPointerDmaBuf);
  const std::size_t page = pages_of(0, 1).bytes;
  EXPECT_EQ(gpu.export_dma_buf(5 * page + 1, page), 77);
  EXPECT_EQ(Driver::exported, (std::pair<unsigned long long, std::size_t>{5 * page, 2 * page}));
  Driver::export_result = 801;
  try {
    gpu.export_dma_buf(page, page);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.what(),
              "the CUDA driver does not export " + std::to_string(page) +
                  " bytes of GPU memory as DMA-BUF (CUDA error 801): set NCCL_MESH_CUDA=0 on all ranks");
  }
}

}  // namespace
}  // namespace mesh
