// The CollNet functions without SHARP, on the fake NIC.
#include "plugins/sharp/coll_net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string>

#include "plugins/mesh/testing/net_fixture.h"

extern "C" {
extern plugfest::abi::v6::CollNet ncclCollNetPlugin_v6;
extern plugfest::abi::v8::CollNet ncclCollNetPlugin_v8;
extern plugfest::abi::v10::CollNet ncclCollNetPlugin_v10;
extern plugfest::abi::v12::CollNet ncclCollNetPlugin_v12;
extern plugfest::abi::v8::Net ncclNetPlugin_v8;
extern plugfest::abi::v12::Net ncclNetPlugin_v12;
}

namespace sharp {
namespace {

using mesh::g_warnings;
using mesh::keep_warnings;
using mesh::kStale;
using ::testing::HasSubstr;
namespace abi = plugfest::abi;
using abi::Result;

class CollNetTest : public mesh::NetTest {
 protected:
  void init() { ASSERT_EQ(coll_net::init(&context_, 0, keep_warnings), Result::kSuccess); }
};

template <typename CollNet, typename Net>
void expect_devices_of_net(const CollNet& coll_net, const Net& net) {
  int count = 0, net_count = 0;
  ASSERT_EQ(coll_net.devices(&count), Result::kSuccess);
  ASSERT_EQ(net.devices(&net_count), Result::kSuccess);
  ASSERT_EQ(count, net_count);
  ASSERT_EQ(count, 1);
  typename CollNet::Properties properties, net_properties;
  ASSERT_EQ(coll_net.getProperties(0, &properties), Result::kSuccess);
  ASSERT_EQ(net.getProperties(0, &net_properties), Result::kSuccess);
  EXPECT_STREQ(properties.name, net_properties.name);
  EXPECT_EQ(properties.ptrSupport, abi::kPointerHost);
  if constexpr (requires { properties.maxCollBytes; }) {
    EXPECT_EQ(properties.maxCollBytes % 8, 0u);
    EXPECT_LE(properties.maxCollBytes, abi::kMaxNetSizeBytes);
  }
}

TEST_F(CollNetTest, DevicesAreThoseOfTheNet) {
  init();
  expect_devices_of_net(ncclCollNetPlugin_v12, ncclNetPlugin_v12);
  expect_devices_of_net(ncclCollNetPlugin_v8, ncclNetPlugin_v8);
  EXPECT_STREQ(ncclCollNetPlugin_v6.name, "Sharp");
  EXPECT_STREQ(ncclCollNetPlugin_v10.name, "Sharp");
}

TEST_F(CollNetTest, ReduceSupportAnswersForAllValues) {
  for (const int type : {INT_MIN, -1, 0, 5, 9, 10, 11, 12, INT_MAX})
    for (const int op : {INT_MIN, -1, 0, 3, 4, INT_MAX}) {
      int supported = -7;
      ASSERT_EQ(coll_net::reduce_support(type, op, &supported), Result::kSuccess);
      EXPECT_EQ(supported, type >= 0 && type <= 9 && op >= 0 && op <= 3 ? 1 : 0) << type << " " << op;
    }
  EXPECT_EQ(coll_net::reduce_support(0, 0, nullptr), Result::kInvalidArgument);
}

TEST_F(CollNetTest, InitFailsForAnInvalidTimeout) {
  for (const char* text : {"0", "x", "1s", "-1", "86401"}) {
    setenv("NCCL_SHARP_CONNECT_TIMEOUT", text, 1);
    void* context = kStale;
    EXPECT_EQ(coll_net::init(&context, 0, keep_warnings), Result::kInvalidArgument);
    EXPECT_EQ(context, nullptr);
    EXPECT_EQ(g_warnings.back(), std::string("COLLNET/sharp: NCCL_SHARP_CONNECT_TIMEOUT=") + text +
                                     ": expected a number of seconds from 1 to 86400");
  }
  unsetenv("NCCL_SHARP_CONNECT_TIMEOUT");
}

// The fake NIC is not in /sys, so libsharp_coll does not find it. One rank needs no other one.
TEST_F(CollNetTest, ConnectFailsWithoutSharp) {
  init();
  mesh::HandleBytes handle = {};
  void* listener = kStale;
  ASSERT_EQ(coll_net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  void* handles[] = {handle.data()};
  void* comm = kStale;
  EXPECT_EQ(coll_net::connect(handles, 1, 0, listener, &comm), Result::kSystemError);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(g_warnings.back(),
            "COLLNET/sharp: sharp_coll_init: no usable device (-9): check that the NIC is up and has "
            "an address");
  comm = kStale;
  EXPECT_EQ(coll_net::connect(handles, 1, 0, listener, &comm), Result::kInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(g_warnings.back(), "COLLNET/sharp: connect: listenComm was already used by an earlier connect");
  EXPECT_EQ(coll_net::close_listen(listener), Result::kSuccess);
}

TEST_F(CollNetTest, ListenersMayStayUnused) {
  init();
  mesh::HandleBytes handle = {};
  void* listener = nullptr;
  ASSERT_EQ(ncclCollNetPlugin_v8.listen(0, handle.data(), &listener), Result::kSuccess);
  EXPECT_EQ(coll_net::close_listen(listener), Result::kSuccess);
  listener = kStale;
  EXPECT_EQ(coll_net::listen(context_, 7, handle.data(), &listener), Result::kInvalidArgument);
  EXPECT_EQ(listener, nullptr);
}

TEST_F(CollNetTest, InvalidArgumentsAreRefused) {
  init();
  mesh::HandleBytes handle = {};
  void* listener = nullptr;
  ASSERT_EQ(coll_net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  void* handles[] = {handle.data(), nullptr};
  const auto connect = [&](void** all, int ranks, int rank, void* listen_comm) {
    void* comm = kStale;
    const Result result = coll_net::connect(all, ranks, rank, listen_comm, &comm);
    EXPECT_EQ(comm, nullptr);
    return result;
  };
  EXPECT_EQ(connect(nullptr, 1, 0, listener), Result::kInvalidArgument);
  EXPECT_EQ(connect(handles, 2, 0, listener), Result::kInvalidArgument);
  EXPECT_EQ(connect(handles, 1, 1, listener), Result::kInvalidArgument);
  EXPECT_EQ(connect(handles, 0, 0, listener), Result::kInvalidArgument);
  EXPECT_EQ(g_warnings.back(), "COLLNET/sharp: connect: rank 0 of 0 does not exist");
  EXPECT_EQ(connect(handles, 1, 0, nullptr), Result::kInvalidArgument);
  EXPECT_EQ(coll_net::close_listen(listener), Result::kSuccess);

  void* request = kStale;
  EXPECT_EQ(coll_net::iallreduce(nullptr, nullptr, nullptr, 0, 0, 0, nullptr, nullptr, &request),
            Result::kInvalidArgument);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(g_warnings.back(), "COLLNET/sharp: iallreduce: collComm is NULL");
  EXPECT_EQ(coll_net::iallreduce(&handle, nullptr, nullptr, 0, 0, 0, nullptr, nullptr, nullptr),
            Result::kInvalidArgument);
  EXPECT_EQ(g_warnings.back(), "COLLNET/sharp: iallreduce: request is NULL");
  int done = 1;
  EXPECT_EQ(coll_net::test(nullptr, &done, nullptr), Result::kInvalidArgument);
  EXPECT_EQ(done, 0);
  request = kStale;
  EXPECT_EQ(coll_net::iflush(nullptr, nullptr, 0, nullptr, &request), Result::kSuccess);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(coll_net::close_coll(nullptr), Result::kSuccess);
}

}  // namespace
}  // namespace sharp
