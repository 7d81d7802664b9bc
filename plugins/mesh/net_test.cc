// The whole plugin in one process, on a NIC that is only pretended: what the caller sees, rule by rule, and what real
// NICs do only now and then.
#include "plugins/mesh/net.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "plugins/mesh/failure.h"
#include "plugins/mesh/handle.h"
#include "plugins/mesh/socket.h"
#include "plugins/mesh/state.h"
#include "plugins/mesh/testing/fake_verbs.h"

namespace mesh {
namespace {

std::vector<std::string> g_warnings;
void keep_warnings(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level != abi::kLogWarn) return;
  va_list arguments;
  va_start(arguments, format);
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  g_warnings.emplace_back(text);
}

using HandleBytes = std::array<std::uint8_t, kHandleBytes>;
void* const kStale = reinterpret_cast<void*>(0x5a5a5a5a5a5a5a5a);

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

class NetTest : public ::testing::Test {
 protected:
  NetTest() {
    g_warnings.clear();
    fake::nic() = {};
  }
  ~NetTest() override {
    for (void* each : sends_) EXPECT_EQ(net::close_send(each), Result::kSuccess);
    for (void* each : receives_) EXPECT_EQ(net::close_recv(each), Result::kSuccess);
    if (context_ != nullptr) {
      EXPECT_EQ(net::finalize(context_), Result::kSuccess);
    }
    EXPECT_EQ(fake::open_objects(), 0u);
  }

  void init() { ASSERT_EQ(net::init(&context_, 0, nullptr, keep_warnings, nullptr), Result::kSuccess); }

  /// One connection to itself.
  void connect() {
    if (context_ == nullptr) init();
    HandleBytes handle;
    void* listener = nullptr;
    ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
    connect_to(listener, handle);
    ASSERT_EQ(net::close_listen(listener), Result::kSuccess);
  }
  void connect_to(void* listener, HandleBytes handle) {
    send_ = receive_ = nullptr;
    for (int i = 0; i < 1000 && (send_ == nullptr || receive_ == nullptr); ++i) {
      if (send_ == nullptr) {
        ASSERT_EQ(net::connect(context_, 0, handle.data(), &send_, nullptr), Result::kSuccess);
      }
      if (receive_ == nullptr) {
        ASSERT_EQ(net::accept(listener, &receive_, nullptr), Result::kSuccess);
      }
    }
    ASSERT_NE(send_, nullptr);
    ASSERT_NE(receive_, nullptr);
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

  void* post_receive(std::vector<Memory*> memories, std::vector<int> tags) {
    std::vector<void*> data, handles;
    std::vector<std::size_t> sizes;
    for (Memory* each : memories) {
      data.push_back(each->bytes.data());
      sizes.push_back(each->bytes.size());
      handles.push_back(each->handle);
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

  /// Sizes of a request that is done, empty if it is not.
  std::vector<int> done(void* request, std::size_t count = 1) {
    int done = 0x5a5a5a5a;
    std::vector<int> sizes(64, -1);
    EXPECT_EQ(net::test(request, &done, sizes.data()), Result::kSuccess);
    EXPECT_TRUE(done == 0 || done == 1) << done;
    for (std::size_t i = count; i < sizes.size(); ++i) EXPECT_EQ(sizes[i], -1) << i;
    sizes.resize(done == 1 ? count : 0);
    return sizes;
  }
  /// Tests a request that has only completions left to be looked at.
  std::vector<int> sizes_of(void* request, std::size_t count = 1) {
    std::vector<int> sizes;
    for (int i = 0; i < 100 && sizes.empty(); ++i) sizes = done(request, count);
    return sizes;
  }
  Result test_result(void* request) {
    int done = 1, sizes[64];
    const Result result = net::test(request, &done, sizes);
    EXPECT_EQ(done, 0);
    return result;
  }
  /// Tests until the result is not Success any more.
  Result failure_of(void* request) {
    for (int i = 0; i < 10000; ++i) {
      if (const Result result = test_result(request); result != Result::kSuccess) return result;
      usleep(100);
    }
    return Result::kSuccess;
  }

  using Sizes = std::vector<int>;
  void* context_ = nullptr;
  void* send_ = nullptr;
  void* receive_ = nullptr;
  std::vector<void*> sends_, receives_;
};

TEST_F(NetTest, DescribesTheNic) {
  init();
  int count = -7;
  ASSERT_EQ(net::devices(&count), Result::kSuccess);
  ASSERT_EQ(count, 1);
  net::Properties properties;
  std::memset(&properties, 0x5a, sizeof properties);
  ASSERT_EQ(net::get_properties(0, &properties), Result::kSuccess);
  EXPECT_STREQ(properties.name, "fake0");
  EXPECT_EQ(properties.pciPath, nullptr);
  EXPECT_NE(properties.guid, 0u);
  EXPECT_EQ(properties.speed, 25000);
  EXPECT_EQ(properties.maxRecvs, 8);
  EXPECT_EQ(properties.vProps.ndevs, 1);
  EXPECT_EQ(properties.planeId, -1);
  EXPECT_EQ(net::get_properties(1, &properties), Result::kInvalidArgument);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: there is no device 1: devices gave 1");
}

TEST_F(NetTest, HasNoDevicesWherePortsAreDown) {
  fake::nic().active = false;
  init();
  int count = -7;
  ASSERT_EQ(net::devices(&count), Result::kSuccess);
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, ContextsAreIndependent) {
  init();
  void* second = nullptr;
  ASSERT_EQ(net::init(&second, 1, nullptr, keep_warnings, nullptr), Result::kSuccess);
  EXPECT_NE(second, context_);
  connect();
  EXPECT_EQ(net::finalize(second), Result::kSuccess);
  EXPECT_EQ(net::finalize(nullptr), Result::kSuccess);
  EXPECT_EQ(net::finalize(second), Result::kInvalidArgument);
  Memory from(send_, 100, 1), to(receive_, 100);
  void* receive = post_receive({&to}, {0});
  void* send = post_send(from, 0);
  EXPECT_EQ(done(send), Sizes{100});
  EXPECT_EQ(done(receive), Sizes{100});
}

TEST_F(NetTest, OpenCommsOutliveTheirContext) {
  connect();
  EXPECT_EQ(net::finalize(context_), Result::kSuccess);
  context_ = nullptr;
  Memory from(send_, 100, 1), to(receive_, 100);
  void* receive = post_receive({&to}, {0});
  EXPECT_EQ(done(post_send(from, 0)), Sizes{100});
  EXPECT_EQ(done(receive), Sizes{100});
}

TEST_F(NetTest, ManyConnectionsFinishWhateverTheOrder) {
  init();
  constexpr std::size_t kCount = 64;
  std::vector<HandleBytes> handles(kCount);
  std::vector<void*> listeners(kCount), sends(kCount), receives(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(net::listen(context_, 0, handles[i].data(), &listeners[i]), Result::kSuccess);
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(net::connect(context_, 0, handles[i].data(), &sends[i], nullptr), Result::kSuccess);
      EXPECT_EQ(sends[i], nullptr);
    }
  }
  for (int round = 0; round < 100; ++round) {
    for (std::size_t i = kCount; i-- > 0;) {
      if (receives[i] == nullptr) {
        ASSERT_EQ(net::accept(listeners[i], &receives[i], nullptr), Result::kSuccess);
      }
      if (sends[i] == nullptr) {
        ASSERT_EQ(net::connect(context_, 0, handles[i].data(), &sends[i], nullptr), Result::kSuccess);
      }
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NE(sends[i], nullptr);
    ASSERT_NE(receives[i], nullptr);
    EXPECT_EQ(net::close_listen(listeners[i]), Result::kSuccess);
  }
  sends_ = sends;
  receives_ = receives;
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, AListenerTakesSeveralConnections) {
  init();
  HandleBytes handle;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  for (std::uint8_t i = 0; i < 8; ++i) {
    connect_to(listener, handle);
    Memory from(send_, 8, i), to(receive_, 8);
    void* receive = post_receive({&to}, {0});
    EXPECT_EQ(done(post_send(from, 0)), Sizes{8});
    EXPECT_EQ(done(receive), Sizes{8});
    EXPECT_EQ(to.bytes, from.bytes);
  }
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
}

TEST_F(NetTest, StrangersOnThePortDisturbNobody) {
  init();
  HandleBytes bytes;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, bytes.data(), &listener), Result::kSuccess);
  const Handle handle = decode_handle(bytes);
  std::vector<Socket> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(begin_connect(std::nullopt, handle.addresses.front().network.address, handle.port));
    const char text[] = "GET / HTTP/1.0\r\n\r\n";
    if (i % 2 == 0) {
      ASSERT_GT(::send(strangers.back().fd(), text, sizeof text, MSG_NOSIGNAL), 0);
    }
  }
  PeerLink wrong(begin_connect(std::nullopt, handle.addresses.front().network.address, handle.port));
  Hello hello = {.nonce = make_nonce(), .endpoint = {}};
  hello.endpoint.mtu = 3;
  ASSERT_TRUE(wrong.send(hello));
  connect_to(listener, bytes);
  EXPECT_EQ(std::get<Refused>(*wrong.receive()).reason, Refusal::kUnknownListener);
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, AskedForTheRestItTellsAllAddresses) {
  init();
  HandleBytes bytes;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, bytes.data(), &listener), Result::kSuccess);
  const Handle handle = decode_handle(bytes);
  PeerLink link(begin_connect(std::nullopt, handle.addresses.front().network.address, handle.port));
  ASSERT_TRUE(link.send(Ask{handle.nonce}));
  void* nothing = nullptr;
  ASSERT_EQ(net::accept(listener, &nothing, nullptr), Result::kSuccess);
  EXPECT_EQ(nothing, nullptr);
  EXPECT_EQ(std::get<Addresses>(*link.receive()).addresses, handle.addresses);

  // A handle that has no room for the address that fits: connect asks, and finds the way.
  Handle cut = handle;
  cut.addresses = {{{handle.addresses.front().network.address, 32}, true}};
  cut.addresses.front().network.address.bytes[13] = 1;  // 127.1.0.1: not a NIC's, and routed
  cut.address_count = 2;
  const Socket elsewhere = *listen_at(cut.addresses.front().network.address, 0);
  cut.port = port_of(elsewhere);
  encode_handle(cut, bytes);
  void* send = nullptr;
  ASSERT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSuccess);
  PeerLink asking(Socket(::accept(elsewhere.fd(), nullptr, nullptr)));
  ASSERT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSuccess);
  EXPECT_EQ(std::get<Ask>(*asking.receive()).nonce, handle.nonce);
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
}

TEST_F(NetTest, ABadHandleIsNamed) {
  init();
  HandleBytes handle = {};
  void* send = kStale;
  EXPECT_EQ(net::connect(context_, 0, handle.data(), &send, nullptr), Result::kInvalidArgument);
  EXPECT_EQ(send, nullptr);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: connect got a handle that no listener of this plugin made (wrong magic): use one plugin on all "
            "ranks");
}

TEST_F(NetTest, AClosedListenerIsNamed) {
  init();
  HandleBytes handle;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  ASSERT_EQ(net::close_listen(listener), Result::kSuccess);
  const int port = decode_handle(handle).port;
  void* send = nullptr;
  Result result = Result::kSuccess;
  for (int i = 0; i < 100 && result == Result::kSuccess; ++i) {
    result = net::connect(context_, 0, handle.data(), &send, nullptr);
  }
  EXPECT_EQ(result, Result::kRemoteError);
  EXPECT_EQ(send, nullptr);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: nothing listens at 127.0.0.1 port " + std::to_string(port) +
                                   ": the peer closed its listener or its process died; look at its log");
}

TEST_F(NetTest, AHandleOfAClosedListenerBesideOpenOnesIsRefused) {
  init();
  HandleBytes handle, other;
  void *listener = nullptr, *open = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  ASSERT_EQ(net::listen(context_, 0, other.data(), &open), Result::kSuccess);
  ASSERT_EQ(net::close_listen(listener), Result::kSuccess);
  void *send = nullptr, *receive = nullptr;
  Result result = Result::kSuccess;
  for (int i = 0; i < 100 && result == Result::kSuccess; ++i) {
    result = net::connect(context_, 0, handle.data(), &send, nullptr);
    ASSERT_EQ(net::accept(open, &receive, nullptr), Result::kSuccess);
  }
  EXPECT_EQ(result, Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: the peer at 127.0.0.1 does not know this handle: its listener was closed");
  EXPECT_EQ(net::close_listen(open), Result::kSuccess);
}

TEST_F(NetTest, APeerOnNoSubnetIsNamedWithBothSides) {
  init();
  Handle handle = {.port = 1, .addresses = {{{parse_address("fd12:3456::1"), 64}, true}}, .address_count = 1};
  HandleBytes bytes;
  encode_handle(handle, bytes);
  void* send = nullptr;
  EXPECT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSystemError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: no NIC here reaches the peer: subnets here are 127.0.0.0/8, those of the peer are "
            "fd12:3456::/64; give both hosts an address on one subnet, or add a route");
}

TEST_F(NetTest, GroupsAreFilledByTag) {
  connect();
  Memory a(receive_, 100), b(receive_, 200), c(receive_, 300), d(receive_, 10);
  void* first = post_receive({&a, &b, &c}, {7, 8, 7});
  void* second = post_receive({&d}, {9});
  Memory from(send_, 300, 5);
  EXPECT_EQ(post_send(from, 9, 10), nullptr);  // not its turn
  void* to_b = post_send(from, 8, 150);
  EXPECT_EQ(done(first, 3), Sizes{});
  void* to_a = post_send(from, 7, 0);
  void* to_c = post_send(from, 7, 300);
  EXPECT_EQ(done(first, 3), (Sizes{0, 150, 300}));
  EXPECT_EQ(done(to_a), Sizes{0});
  EXPECT_EQ(done(to_b), Sizes{150});
  EXPECT_EQ(done(to_c), Sizes{300});
  EXPECT_EQ(done(second), Sizes{});
  EXPECT_EQ(done(post_send(from, 9, 10)), Sizes{10});
  EXPECT_EQ(done(second), Sizes{10});
  EXPECT_EQ(b.bytes[149], 5);
  EXPECT_EQ(b.bytes[150], 0);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, TakesAllRequestsAndThenSaysNotNow) {
  connect();
  Memory to(receive_, 8), from(send_, 8, 3);
  const std::vector<Memory*> group(8, &to);
  std::vector<int> tags(8);
  std::iota(tags.begin(), tags.end(), 100);
  std::vector<void*> receives, sends;
  for (int i = 0; i < 32; ++i) receives.push_back(post_receive(group, tags));
  EXPECT_EQ(post_receive(group, tags), nullptr);
  for (int i = 0; i < 32; ++i) {
    for (int tag = 107; tag >= 100; --tag) {
      sends.push_back(post_send(from, tag));
      ASSERT_NE(sends.back(), nullptr) << i;
    }
  }
  EXPECT_EQ(post_send(from, 100), nullptr);
  for (void* each : receives) EXPECT_EQ(sizes_of(each, 8), Sizes(8, 8));
  // The newest first: each test may look at no more than some completions.
  for (std::size_t i = sends.size(); i-- > 0;) EXPECT_EQ(sizes_of(sends[i]), Sizes{8});
  EXPECT_NE(post_receive(group, tags), nullptr);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, LongMessagesGoInPieces) {
  fake::nic().max_message_bytes = 8192;
  connect();
  // Exactly whole pieces, and more of them than work requests fit into a queue.
  for (const std::size_t size : {8192u, 8193u, 16384u, 8192u * 300 + 5}) {
    Memory from(send_, size), to(receive_, size + 1);
    std::iota(from.bytes.begin(), from.bytes.end(), std::uint8_t{1});
    void* receive = post_receive({&to}, {0});
    void* send = post_send(from, 0);
    EXPECT_EQ(sizes_of(send), Sizes{static_cast<int>(size)});
    EXPECT_EQ(done(receive), Sizes{static_cast<int>(size)});
    EXPECT_TRUE(std::equal(from.bytes.begin(), from.bytes.end(), to.bytes.begin()));
    EXPECT_EQ(to.bytes[size], 0);
  }
}

TEST_F(NetTest, WorksWithoutInlineData) {
  fake::nic().max_inline_bytes = 0;
  connect();
  Memory from(send_, 16, 9), to(receive_, 16);
  void* receive = post_receive({&to}, {0});
  EXPECT_EQ(done(post_send(from, 0)), Sizes{16});
  EXPECT_EQ(done(receive), Sizes{16});
  EXPECT_EQ(to.bytes, from.bytes);
}

TEST_F(NetTest, ASendThatIsTooLongWritesNothing) {
  connect();
  Memory from(send_, 100, 9), to(receive_, 50);
  void* receive = post_receive({&to}, {3});
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, from.bytes.data(), 100, 3, from.handle, nullptr, &request), Result::kInvalidUsage);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: isend of 100 bytes, tag 3: the receive that it matches has room for 50");
  EXPECT_EQ(done(receive), Sizes{});
  EXPECT_EQ(to.bytes, std::vector<std::uint8_t>(50, 0));
}

TEST_F(NetTest, RequestsThatAreNoneAreErrors) {
  connect();
  Memory from(send_, 8, 1), to(receive_, 8);
  void* receive = post_receive({&to}, {0});
  void* send = post_send(from, 0);
  EXPECT_EQ(done(send), Sizes{8});
  EXPECT_EQ(test_result(send), Result::kInvalidArgument);
  EXPECT_EQ(test_result(nullptr), Result::kInvalidArgument);
  EXPECT_EQ(test_result(kStale), Result::kInvalidArgument);
  EXPECT_EQ(done(receive), Sizes{8});
  EXPECT_EQ(test_result(receive), Result::kInvalidArgument);
}

TEST_F(NetTest, MemoryThatIsNotRegisteredIsRefused) {
  connect();
  Memory from(send_, 100), to(receive_, 100);
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, from.bytes.data() + 1, 100, 0, from.handle, nullptr, &request), Result::kInvalidArgument);
  EXPECT_EQ(net::isend(send_, from.bytes.data(), 1, 0, nullptr, nullptr, &request), Result::kInvalidArgument);
  EXPECT_EQ(net::dereg_mr(send_, kStale), Result::kInvalidArgument);
  EXPECT_EQ(net::dereg_mr(send_, to.handle), Result::kInvalidArgument);
  EXPECT_EQ(net::dereg_mr(send_, nullptr), Result::kSuccess);
  void* memory = kStale;
  for (const int type : {0, 2, 3, 4, 8}) {
    EXPECT_EQ(net::reg_mr(send_, from.bytes.data(), 8, type, &memory), Result::kInvalidArgument);
    EXPECT_EQ(memory, nullptr);
  }
  EXPECT_EQ(net::reg_mr(send_, from.bytes.data(), 0, abi::kPointerHost, &memory), Result::kSuccess);
  EXPECT_EQ(net::dereg_mr(send_, memory), Result::kSuccess);
}

TEST_F(NetTest, ReceivesOfNoneOrTooManyAreErrors) {
  connect();
  void* request = kStale;
  EXPECT_EQ(net::irecv(receive_, 0, nullptr, nullptr, nullptr, nullptr, nullptr, &request), Result::kInvalidUsage);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(net::irecv(receive_, 9, nullptr, nullptr, nullptr, nullptr, nullptr, &request), Result::kInvalidUsage);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: irecv of 9 buffers at once: 1 to 8 can be received (maxRecvs)");
}

TEST_F(NetTest, AReceiverThatWaitsLearnsThatThePeerHasGone) {
  connect();
  Memory to(receive_, 8);
  void* receive = post_receive({&to}, {0});
  close_send();
  EXPECT_EQ(failure_of(receive), Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: the peer at 127.0.0.1 (over fake0) closed the connection while this side still used it");
  EXPECT_EQ(g_warnings.size(), 1u);
  EXPECT_EQ(test_result(receive), Result::kRemoteError);
  EXPECT_EQ(g_warnings.size(), 1u) << "said once";
}

TEST_F(NetTest, WhatWasSentBeforeTheEndArrives) {
  connect();
  Memory to(receive_, 8);
  void* receive = post_receive({&to}, {0});
  {
    Memory from(send_, 8, 4);
    EXPECT_EQ(done(post_send(from, 0)), Sizes{8});
  }
  close_send();
  usleep(50000);
  EXPECT_EQ(done(receive), Sizes{8});
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, ASendThatThePeerReceivedBeforeItClosedIsDone) {
  connect();
  Memory from(send_, 8, 4);
  void* send = nullptr;
  {
    Memory to(receive_, 8);
    void* receive = post_receive({&to}, {0});
    fake::nic().lose_acknowledgements = true;
    send = post_send(from, 0);
    EXPECT_EQ(done(receive), Sizes{8});
    EXPECT_EQ(done(send), Sizes{});
  }
  close_receive();
  Sizes sizes;
  for (int i = 0; i < 1000 && sizes.empty(); ++i) {
    sizes = done(send);
    usleep(1000);
  }
  EXPECT_EQ(sizes, Sizes{8});
  EXPECT_TRUE(g_warnings.empty());
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, from.bytes.data(), 8, 1, from.handle, nullptr, &request), Result::kRemoteError);
  EXPECT_EQ(request, nullptr);
}

TEST_F(NetTest, APeerThatDoesNotAnswerIsNamed) {
  connect();
  Memory from(send_, 8), to(receive_, 8);
  post_receive({&to}, {0});
  fake::nic().lose_packets = true;
  void* send = post_send(from, 0);
  EXPECT_EQ(failure_of(send), Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: the peer at 127.0.0.1 (over fake0) does not answer: it died or the link is cut; look at that "
            "host and its cable (NCCL_MESH_TIMEOUT sets the patience)");
}

TEST_F(NetTest, MemoryDeregisteredUnderAReceiveIsNotWritten) {
  connect();
  Memory from(send_, 8, 7);
  auto to = std::make_unique<Memory>(receive_, 8);
  void* receive = post_receive({to.get()}, {0});
  ASSERT_EQ(net::dereg_mr(receive_, to->handle), Result::kSuccess);
  to->handle = nullptr;
  void* send = post_send(from, 0);
  EXPECT_EQ(failure_of(send), Result::kRemoteError);
  EXPECT_EQ(to->bytes, std::vector<std::uint8_t>(8, 0));
  EXPECT_NE(failure_of(receive), Result::kSuccess);
}

TEST_F(NetTest, AnAbandonedConnectIsForgottenByFinalize) {
  init();
  HandleBytes handle;
  void *listener = nullptr, *send = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(net::connect(context_, 0, handle.data(), &send, nullptr), Result::kSuccess);
  void* receive = nullptr;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(net::accept(listener, &receive, nullptr), Result::kSuccess);
  EXPECT_EQ(receive, nullptr);
  EXPECT_EQ(net::finalize(context_), Result::kSuccess);
  context_ = nullptr;
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
}

TEST_F(NetTest, ThreadsNeedNoLockOfTheirs) {
  // Traffic on two connections, registrations on both meanwhile, and new connections: what NCCL's threads do at once.
  struct Ends {
    void* send;
    void* receive;
  };
  std::vector<Ends> ends;
  for (int i = 0; i < 2; ++i) {
    connect();
    ends.push_back({send_, receive_});
  }
  std::vector<std::thread> threads;
  std::atomic<int> running = 2;
  for (const Ends& each : ends) {
    threads.emplace_back([&running, each] {
      Memory from(each.send, 64), to(each.receive, 64);
      for (int i = 0; i < 2000; ++i) {
        void *send = nullptr, *receive = nullptr, *data = to.bytes.data(), *handle = to.handle;
        std::size_t size = 64;
        int tag = i, done = 0;
        ASSERT_EQ(net::irecv(each.receive, 1, &data, &size, &tag, &handle, nullptr, &receive), Result::kSuccess);
        ASSERT_EQ(net::isend(each.send, from.bytes.data(), 64, tag, from.handle, nullptr, &send), Result::kSuccess);
        while (done == 0) ASSERT_EQ(net::test(receive, &done, nullptr), Result::kSuccess);
        done = 0;
        while (done == 0) ASSERT_EQ(net::test(send, &done, nullptr), Result::kSuccess);
      }
      --running;
    });
  }
  while (running > 0) {
    for (const Ends& each : ends) {
      const Memory first(each.send, 100), second(each.receive, 100);
    }
    connect();
    close_send();
    close_receive();
  }
  for (std::thread& each : threads) each.join();
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, UnloadingClosesWhatIsStillOpen) {
  connect();
  HandleBytes handle;
  void *listener = nullptr, *half = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  ASSERT_EQ(net::connect(context_, 0, handle.data(), &half, nullptr), Result::kSuccess);
  std::vector<std::uint8_t> bytes(8);
  void* memory = nullptr;
  ASSERT_EQ(net::reg_mr(receive_, bytes.data(), bytes.size(), abi::kPointerHost, &memory), Result::kSuccess);
  close_everything();
  EXPECT_EQ(fake::open_objects(), 0u);

  // Threads that still run get errors, and may close.
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, nullptr, 0, 0, nullptr, nullptr, &request), Result::kInternalError);
  EXPECT_EQ(net::reg_mr(send_, bytes.data(), bytes.size(), abi::kPointerHost, &memory), Result::kInternalError);
  EXPECT_EQ(net::accept(listener, &half, nullptr), Result::kInvalidArgument);
  context_ = nullptr;
}

}  // namespace
}  // namespace mesh
