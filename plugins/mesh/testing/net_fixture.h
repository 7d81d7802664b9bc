// A fixture for tests of the plugin on the fake NIC: it collects log lines and connects the process to itself.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/abi/base.h"
#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/handshake/socket.h"
#include "plugins/mesh/log.h"
#include "plugins/mesh/net.h"
#include "plugins/mesh/testing/fake_verbs.h"

namespace mesh {

/// WARN lines since the test cleared it.
inline std::vector<std::string> g_warnings;

/// All lines since the test cleared it.
inline std::vector<std::string> g_lines;

/// A logger that appends each line to `g_lines`, and WARN lines to `g_warnings`. Thread-safe.
inline void keep_warnings(int level, unsigned long, const char*, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  g_lines.emplace_back(text);
  if (level == plugfest::abi::kLogWarn) g_warnings.emplace_back(text);
}

using HandleBytes = std::array<std::uint8_t, kHandleBytes>;
/// An invalid pointer, for outputs that a call must overwrite.
inline void* const kStale = reinterpret_cast<void*>(0x5a5a5a5a5a5a5a5a);

/// Memory of `size` bytes, registered on `comm`.
struct Memory {
  Memory(void* comm, std::size_t size, std::uint8_t fill = 0) : comm(comm), bytes(size, fill) {
    EXPECT_EQ(net::reg_mr(comm, bytes.data(), size, abi::kPointerHost, &handle), Result::kSuccess);
  }
  ~Memory() {
    if (handle != nullptr) net::dereg_mr(comm, handle);
  }
  void* comm;
  std::vector<std::uint8_t> bytes;
  void* handle = nullptr;
};

/// A listener of the plugin, open until destruction or release().
struct OpenListener {
  explicit OpenListener(void* context, int device = 0) : context(context), device(device) {
    EXPECT_EQ(net::listen(context, device, bytes.data(), &comm), Result::kSuccess);
  }
  ~OpenListener() {
    if (comm != nullptr) EXPECT_EQ(net::close_listen(comm), Result::kSuccess);
  }
  OpenListener(const OpenListener&) = delete;
  OpenListener& operator=(const OpenListener&) = delete;
  /// The caller closes it.
  void* release() { return std::exchange(comm, nullptr); }

  /// One call of connect or accept.
  Result connect(void** send) { return net::connect(context, device, bytes.data(), send, nullptr); }
  Result accept(void** receive) { return net::accept(comm, receive, nullptr); }
  Handle handle() const { return decode_handle(bytes); }
  /// A TCP connection to its port.
  Socket dial() const {
    const Handle to = handle();
    return begin_connect(std::nullopt, to.addresses.front().network.address, to.port);
  }

  void* context;
  int device;
  HandleBytes bytes;
  void* comm = nullptr;
};

class NetTest : public ::testing::Test {
 protected:
  NetTest() {
    g_warnings.clear();
    fake::nic() = {};
  }
  ~NetTest() override {
    for (void* comm : sends_) EXPECT_EQ(net::close_send(comm), Result::kSuccess);
    for (void* comm : receives_) EXPECT_EQ(net::close_recv(comm), Result::kSuccess);
    if (context_ != nullptr) EXPECT_EQ(net::finalize(context_), Result::kSuccess);
    EXPECT_EQ(fake::open_objects(), 0u);
  }

  void init() { ASSERT_EQ(net::init(&context_, 0, nullptr, keep_warnings, nullptr), Result::kSuccess); }

  /// Connects the process to itself: sets `send_` and `receive_`.
  void connect() {
    if (context_ == nullptr) init();
    OpenListener listener(context_, device_);
    connect_to(listener);
  }
  void connect_to(OpenListener& listener) {
    const HandleBytes handle = listener.bytes;  // connect keeps its state in the handle
    send_ = receive_ = nullptr;
    while (send_ == nullptr || receive_ == nullptr) {  // ctest's time limit is the deadline
      if (send_ == nullptr) ASSERT_EQ(listener.connect(&send_), Result::kSuccess);
      if (receive_ == nullptr) ASSERT_EQ(listener.accept(&receive_), Result::kSuccess);
    }
    listener.bytes = handle;
    sends_.push_back(send_);
    receives_.push_back(receive_);
  }
  void close_send() {
    net::close_send(send_);
    sends_.pop_back();
  }
  void close_receive() {
    net::close_recv(receive_);
    receives_.pop_back();
  }

  /// Calls irecv for one buffer.
  Result try_receive(Memory& memory, int tag, void** request, void* phandle = nullptr) {
    void* data = memory.bytes.data();
    std::size_t size = memory.bytes.size();
    return net::irecv(receive_, 1, &data, &size, &tag, &memory.handle, &phandle, request);
  }
  void* post_receive(std::vector<Memory*> memories, std::vector<int> tags) {
    std::vector<void*> data, handles;
    std::vector<std::size_t> sizes;
    for (Memory* memory : memories) {
      data.push_back(memory->bytes.data());
      sizes.push_back(memory->bytes.size());
      handles.push_back(memory->handle);
    }
    void* request = kStale;
    EXPECT_EQ(net::irecv(receive_, static_cast<int>(data.size()), data.data(), sizes.data(), tags.data(),
                         handles.data(), nullptr, &request),
              Result::kSuccess);
    return request;
  }
  void* post_send(Memory& memory, int tag, std::size_t size) {
    void* request = kStale;
    EXPECT_EQ(net::isend(send_, memory.bytes.data(), size, tag, memory.handle, nullptr, &request), Result::kSuccess);
    return request;
  }
  void* post_send(Memory& memory, int tag) { return post_send(memory, tag, memory.bytes.size()); }

  /// Sends a message into a receive of its size.
  void deliver(std::size_t size, int tag = 0) {
    Memory from(send_, size, 7), to(receive_, size);
    void* receive = post_receive({&to}, {tag});
    void* send = post_send(from, tag);
    EXPECT_EQ(sizes_of(send), std::vector<int>{static_cast<int>(size)});
    EXPECT_EQ(sizes_of(receive), std::vector<int>{static_cast<int>(size)});
    EXPECT_EQ(to.bytes, from.bytes);
  }

  /// Tests a request once. Returns its sizes if it is done, else nothing.
  std::vector<int> done(void* request, std::size_t count = 1) {
    int done = 0x5a5a5a5a;
    std::vector<int> sizes(64, -1);
    EXPECT_EQ(net::test(request, &done, sizes.data()), Result::kSuccess);
    EXPECT_TRUE(done == 0 || done == 1) << done;
    for (std::size_t i = count; i < sizes.size(); ++i) EXPECT_EQ(sizes[i], -1) << i;
    sizes.resize(done == 1 ? count : 0);
    return sizes;
  }
  /// Tests a request up to 100 times, for a request whose transfers are complete. Returns its sizes.
  std::vector<int> sizes_of(void* request, std::size_t count = 1) {
    std::vector<int> sizes;
    for (int i = 0; i < 100 && sizes.empty(); ++i) sizes = done(request, count);
    return sizes;
  }
  /// Tests a request that must not be done. Returns the result code.
  Result test_result(void* request) {
    int done = 1, sizes[64];
    const Result result = net::test(request, &done, sizes);
    EXPECT_EQ(done, 0);
    return result;
  }
  /// Tests a request until the result code is not Success.
  Result failure_of(void* request) {
    Result result = test_result(request);
    while (result == Result::kSuccess) result = test_result(request);
    return result;
  }

  using Sizes = std::vector<int>;
  void* context_ = nullptr;
  int device_ = 0;  ///< connect() connects it to itself
  void* send_ = nullptr;
  void* receive_ = nullptr;
  std::vector<void*> sends_, receives_;
};

}  // namespace mesh
