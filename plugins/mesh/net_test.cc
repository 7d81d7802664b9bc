// The plugin on the fake NIC: devices, contexts, unloading.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/state.h"
#include "plugins/mesh/testing/net_fixture.h"

namespace mesh {
namespace {

TEST_F(NetTest, PropertiesDescribeTheNic) {
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
  EXPECT_EQ(g_warnings.back(), "NET/mesh: device 1 does not exist: devices returned 1");
}

TEST_F(NetTest, InitFailsForAnInvalidEnvironmentVariable) {
  setenv("NCCL_MESH_TC", "300", 1);
  void* context = nullptr;
  EXPECT_EQ(net::init(&context, 0, nullptr, keep_warnings, nullptr), Result::kInvalidArgument);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: NCCL_MESH_TC=300: expected a number from 0 to 255");
  EXPECT_EQ(context, nullptr);
  unsetenv("NCCL_MESH_TC");
  EXPECT_EQ(net::init(&context, 0, nullptr, keep_warnings, nullptr), Result::kSuccess);
  EXPECT_EQ(net::finalize(context), Result::kSuccess);
}

TEST_F(NetTest, MakesVirtualDevices) {
  init();
  for (const int index : {1, 2}) {
    net::VDevice members = {.ndevs = 1, .devs = {0}};
    int made = -7, count = -7;
    ASSERT_EQ(net::make_vdevice(&made, &members), Result::kSuccess);
    EXPECT_EQ(made, index);
    ASSERT_EQ(net::devices(&count), Result::kSuccess);
    EXPECT_EQ(count, index + 1);
    net::Properties properties;
    ASSERT_EQ(net::get_properties(index, &properties), Result::kSuccess);
    EXPECT_EQ(properties.name, "fake0#" + std::to_string(index));
    EXPECT_EQ(properties.speed, 25000);
    EXPECT_EQ(properties.vProps.ndevs, 1);
    EXPECT_EQ(properties.vProps.devs[0], 0);
  }
  device_ = 2;
  connect();
  Memory from(send_, 100, 1), to(receive_, 100);
  void* receive = post_receive({&to}, {0});
  EXPECT_EQ(done(post_send(from, 0)), Sizes{100});
  EXPECT_EQ(done(receive), Sizes{100});
}

TEST_F(NetTest, RefusesVirtualDevicesWithoutSideEffect) {
  struct Refusal {
    net::VDevice members;
    Result code;
    const char* warning;
  };
  init();
  int made = -7;
  net::VDevice whole = {.ndevs = 1, .devs = {0}};
  ASSERT_EQ(net::make_vdevice(&made, &whole), Result::kSuccess);
  const auto check = [&](const Refusal& each) {
    net::VDevice members = each.members;
    made = -7;
    EXPECT_EQ(net::make_vdevice(&made, &members), each.code) << each.warning;
    EXPECT_EQ(g_warnings.back(), each.warning);
    EXPECT_EQ(made, -7);
    int count = 0;
    EXPECT_EQ(net::devices(&count), Result::kSuccess);
    EXPECT_EQ(count, 2);
  };
  const Refusal refusals[] = {
      {{.ndevs = 0, .devs = {}},
       Result::kInvalidUsage,
       "NET/mesh: makeVDevice: 0 devices cannot be merged, only 1 to 8"},
      {{.ndevs = 9, .devs = {}},
       Result::kInvalidUsage,
       "NET/mesh: makeVDevice: 9 devices cannot be merged, only 1 to 8"},
      {{.ndevs = 2, .devs = {0, 0}}, Result::kInvalidArgument, "NET/mesh: makeVDevice: device 0 is listed twice"},
      {{.ndevs = 1, .devs = {1}}, Result::kInvalidArgument, "NET/mesh: makeVDevice: device 1 is not one of the 1 NICs"},
      {{.ndevs = 2, .devs = {0, -1}},
       Result::kInvalidArgument,
       "NET/mesh: makeVDevice: device -1 is not one of the 1 NICs"},
  };
  for (const Refusal& each : refusals) check(each);
  EXPECT_EQ(net::make_vdevice(nullptr, &whole), Result::kInvalidArgument);
  EXPECT_EQ(net::make_vdevice(&made, nullptr), Result::kInvalidArgument);
}

TEST_F(NetTest, OneLinkForbidsToMergeNics) {
  setenv("NCCL_MESH_LINKS", "1", 1);
  init();
  unsetenv("NCCL_MESH_LINKS");
  net::VDevice members = {.ndevs = 2, .devs = {0, 1}};
  int made = -7;
  EXPECT_EQ(net::make_vdevice(&made, &members), Result::kInvalidUsage);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: makeVDevice: NCCL_MESH_LINKS=1 forbids to merge NICs: set NCCL_NET_MERGE_LEVEL=LOC as well");
}

TEST_F(NetTest, PortsThatAreDownAreNotDevices) {
  fake::nic().active = false;
  init();
  int count = -7;
  ASSERT_EQ(net::devices(&count), Result::kSuccess);
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, ListensOnAddressesThatANicGotAfterInit) {
  init();
  fake::nic().gids = {"127.0.0.1", "", "::1"};
  connect();
  HandleBytes handle;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  EXPECT_EQ(decode_handle(handle).addresses.size(), 2u);
  fake::nic().gids = {"127.0.0.1"};
  HandleBytes second;
  void* other = nullptr;
  ASSERT_EQ(net::listen(context_, 0, second.data(), &other), Result::kSuccess);
  EXPECT_EQ(decode_handle(second).addresses.size(), 1u);
  connect_to(other, second);
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
  EXPECT_EQ(net::close_listen(other), Result::kSuccess);
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

TEST_F(NetTest, CommsWorkAfterFinalize) {
  connect();
  EXPECT_EQ(net::finalize(context_), Result::kSuccess);
  context_ = nullptr;
  Memory from(send_, 100, 1), to(receive_, 100);
  void* receive = post_receive({&to}, {0});
  EXPECT_EQ(done(post_send(from, 0)), Sizes{100});
  EXPECT_EQ(done(receive), Sizes{100});
}

TEST_F(NetTest, UnloadingClosesOpenObjects) {
  connect();
  HandleBytes handle;
  void *listener = nullptr, *unfinished = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  ASSERT_EQ(net::connect(context_, 0, handle.data(), &unfinished, nullptr), Result::kSuccess);
  std::vector<std::uint8_t> bytes(8);
  void* memory = nullptr;
  ASSERT_EQ(net::reg_mr(receive_, bytes.data(), bytes.size(), abi::kPointerHost, &memory), Result::kSuccess);
  close_everything();
  EXPECT_EQ(fake::open_objects(), 0u);

  // Later calls, from threads that still run, return errors.
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, nullptr, 0, 0, nullptr, nullptr, &request), Result::kInternalError);
  EXPECT_EQ(net::reg_mr(send_, bytes.data(), bytes.size(), abi::kPointerHost, &memory), Result::kInternalError);
  EXPECT_EQ(net::accept(listener, &unfinished, nullptr), Result::kInvalidArgument);
  context_ = nullptr;
}

}  // namespace
}  // namespace mesh
