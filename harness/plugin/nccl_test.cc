// NVIDIA's own transports through the interface of net.h.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <numeric>

#include "fabric/system/testing.h"
#include "harness/plugin/library.h"
#include "harness/plugin/nccl.h"
#include "harness/plugin/resolve.h"

namespace plugfest::plugin {

namespace {

using abi::Result;

void silent(int, unsigned long, const char*, int, const char*, ...) {}

// Skips a test on machines without libnccl.
#define NEED_NCCL() \
  if (find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 here: install NCCL or set NCCL_LIBRARY"

// Drives both sides of a connection from one thread, as NCCL's service thread does.
struct Pair {
  Pair(Net& net, void* context) : net(net) {
    std::array<char, abi::kHandleBytes> handle{};
    void* listener = nullptr;
    EXPECT_EQ(net.listen(context, 0, handle.data(), &listener), Result::kSuccess);
    Result result = Result::kSuccess;
    while (result == Result::kSuccess && (send == nullptr || receive == nullptr)) {
      if (send == nullptr) result = net.connect(context, 0, handle.data(), &send, nullptr);
      if (result == Result::kSuccess && receive == nullptr) result = net.accept(listener, &receive, nullptr);
    }
    EXPECT_EQ(result, Result::kSuccess);
    EXPECT_EQ(net.close_listen(listener), Result::kSuccess);
  }
  ~Pair() {
    EXPECT_EQ(net.close_send(send), Result::kSuccess);
    EXPECT_EQ(net.close_recv(receive), Result::kSuccess);
  }
  Net& net;
  void* send = nullptr;
  void* receive = nullptr;
};

TEST(BuiltinTransport, SocketMovesBytesOverLoopbackWithoutAGpu) {
  NEED_NCCL();
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  Library library("nccl:Socket");
  EXPECT_TRUE(library.built_in());
  EXPECT_EQ(library.apis(), std::vector<int>{11});
  Net& net = library.net();
  EXPECT_STREQ(net.name(), "Socket");

  void* context = nullptr;
  abi::newest::CommConfig config{abi::kTrafficClassUndefined};
  ASSERT_EQ(net.init(&context, 1, &config, silent, nullptr), Result::kSuccess);
  int count = 0;
  ASSERT_EQ(net.devices(&count), Result::kSuccess);
  ASSERT_EQ(count, 1);
  abi::newest::Properties properties{};
  ASSERT_EQ(net.get_properties(0, &properties), Result::kSuccess);
  EXPECT_STREQ(properties.name, "lo");
  {
    const Pair pair(net, context);
    ASSERT_NE(pair.send, nullptr);
    ASSERT_NE(pair.receive, nullptr);
    std::vector<unsigned char> sent(100'000);
    std::iota(sent.begin(), sent.end(), static_cast<unsigned char>(3));
    std::vector<unsigned char> received(sent.size() + 1000);
    void* send_mr = nullptr;
    void* receive_mr = nullptr;
    ASSERT_EQ(net.reg_mr(pair.send, sent.data(), sent.size(), abi::kPointerHost, &send_mr), Result::kSuccess);
    ASSERT_EQ(net.reg_mr(pair.receive, received.data(), received.size(), abi::kPointerHost, &receive_mr),
              Result::kSuccess);

    void* data = received.data();
    std::size_t size = received.size();
    int tag = 7;
    void* receive_request = nullptr;
    void* send_request = nullptr;
    ASSERT_EQ(net.irecv(pair.receive, 1, &data, &size, &tag, &receive_mr, nullptr, &receive_request), Result::kSuccess);
    ASSERT_EQ(net.isend(pair.send, sent.data(), sent.size(), tag, send_mr, nullptr, &send_request), Result::kSuccess);
    ASSERT_NE(receive_request, nullptr);
    ASSERT_NE(send_request, nullptr);
    int sent_done = 0, received_done = 0, sent_size = -1, received_size = -1;
    while (sent_done == 0 || received_done == 0) {
      if (sent_done == 0) ASSERT_EQ(net.test(send_request, &sent_done, &sent_size), Result::kSuccess);
      if (received_done == 0) ASSERT_EQ(net.test(receive_request, &received_done, &received_size), Result::kSuccess);
    }
    EXPECT_EQ(sent_size, 100'000);
    EXPECT_EQ(received_size, 100'000);
    received.resize(sent.size());
    EXPECT_EQ(received, sent);
    EXPECT_EQ(net.dereg_mr(pair.send, send_mr), Result::kSuccess);
    EXPECT_EQ(net.dereg_mr(pair.receive, receive_mr), Result::kSuccess);
  }
  EXPECT_EQ(net.finalize(context), Result::kSuccess);
}

TEST(BuiltinTransport, IbInitializesWithoutADevice) {
  NEED_NCCL();
  Library library("nccl:ib");
  Net& net = library.net();
  EXPECT_STREQ(net.name(), "IB");
  void* context = nullptr;
  abi::newest::CommConfig config{abi::kTrafficClassUndefined};
  ASSERT_EQ(net.init(&context, 1, &config, silent, nullptr), Result::kSuccess);
  int count = -1;
  EXPECT_EQ(net.devices(&count), Result::kSuccess);
  EXPECT_GE(count, 0);
  EXPECT_EQ(net.finalize(context), Result::kSuccess);
}

std::string refusal(const std::string& plugin, int api = 0) {
  return error_message([&] { const Library library(plugin, api); });
}

TEST(BuiltinTransport, RefusesOtherNames) {
  EXPECT_EQ(refusal("nccl:foo"), "nccl:foo: no such built-in transport: it is nccl:IB, nccl:Socket or nccl:GIN");
}

TEST(BuiltinTransport, RefusesOtherVersions) {
  NEED_NCCL();
  EXPECT_EQ(refusal("nccl:IB", 8), "nccl:IB: is net v11 of this libnccl only");
}

TEST(BuiltinTransport, NamesTheLibraryInItsError) {
  ::setenv("NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  EXPECT_EQ(refusal("nccl:IB"), "nccl:IB: /nowhere/libnccl.so.2: no such file");
  ::setenv("NCCL_LIBRARY", "/proc/self/exe", 1);
  EXPECT_EQ(refusal("nccl:IB"), "nccl:IB: /proc/self/exe: a program, not a shared library");
  const std::string other = find_library("libz.so.1");
  ASSERT_FALSE(other.empty());
  ::setenv("NCCL_LIBRARY", other.c_str(), 1);
  EXPECT_EQ(refusal("nccl:IB"), "nccl:IB: " + other + " is not NCCL: it has no ncclGetVersion");
  ::unsetenv("NCCL_LIBRARY");
}

}  // namespace

}  // namespace plugfest::plugin
