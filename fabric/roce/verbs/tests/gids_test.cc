// GID indices when addresses are added and removed, in verbs and in the sysfs view.
#include <gtest/gtest.h>

#include "fabric/roce/verbs/device/gid_table.h"
#include "fabric/roce/verbs/testing/verbs_endpoint.h"

namespace plugfest::roce {
namespace {

constexpr const char* kGids = "/sys/class/infiniband/roce_eth0/ports/1/gids/";
constexpr const char* kTypes = "/sys/class/infiniband/roce_eth0/ports/1/gid_attrs/types/";

class Gids : public ::testing::Test {
 protected:
  Gids() {
    change("add", 77);
    next_event();
    index_of_77 = index_of(77);
    change("add", 78);
    next_event();
  }
  ~Gids() override { EXPECT_EQ(ibv_close_device(context), 0); }

  void change(const std::string& what, int last_byte) {
    const std::string address = "192.168.100." + std::to_string(last_byte) + "/24";
    ASSERT_EQ(hosts.start("a", {"ip", "address", what, address, "dev", "eth0"}).wait().exit_code, 0);
  }

  void next_event() {
    ibv_async_event event = {};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
    ibv_ack_async_event(&event);
  }

  ibv_gid gid_at(int index) {
    ibv_gid gid = {};
    hosts.fabric().call("a", [&] { EXPECT_EQ(ibv_query_gid(context, 1, index, &gid), 0); });
    return gid;
  }

  // Index of the IPv4 address with this last byte; -1 if none.
  int index_of(int last_byte) {
    for (int index = 0; index < static_cast<int>(kGidTableSize); ++index) {
      const ibv_gid gid = gid_at(index);
      if (gid.raw[10] == 0xff && gid.raw[15] == last_byte) return index;
    }
    return -1;
  }

  std::string content(const std::string& file) { return hosts.start("a", {"cat", file}).wait().output; }

  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  int index_of_77 = -1;
};

TEST_F(Gids, KeepTheirIndexWhenAnotherIsRemoved) {
  ASSERT_GT(index_of_77, 0);
  const int index_of_78 = index_of(78);
  EXPECT_EQ(index_of_78, index_of_77 + 1);
  change("del", 77);
  next_event();
  EXPECT_EQ(index_of(78), index_of_78);
  EXPECT_EQ(index_of(1), 0);
  const ibv_gid empty = gid_at(index_of_77);
  EXPECT_EQ(empty.global.subnet_prefix | empty.global.interface_id, 0u);
  change("add", 79);
  next_event();
  EXPECT_EQ(index_of(79), index_of_77);
}

TEST_F(Gids, AreUpdatedInTheSysfsView) {
  const std::string index = std::to_string(index_of_77);
  EXPECT_EQ(content(kGids + index), "0000:0000:0000:0000:0000:ffff:c0a8:644d\n");
  EXPECT_EQ(content(kTypes + index), "RoCE v2\n");
  change("del", 77);
  next_event();
  EXPECT_EQ(content(kGids + index), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(content(kTypes + index), "");
}

TEST(PortState, IsUpdatedInTheSysfsView) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  const auto state = [&] {
    return hosts.start("a", {"cat", "/sys/class/infiniband/roce_eth0/ports/1/state"}).wait().output;
  };
  EXPECT_EQ(state(), "4: ACTIVE\n");
  hosts.fabric().set_interface_up("b", "eth0", false);
  ibv_async_event event = {};
  do {
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    ibv_ack_async_event(&event);
  } while (event.event_type != IBV_EVENT_PORT_ERR);
  EXPECT_EQ(state(), "1: DOWN\n");
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(Gids, AreTheSameInALaterProcess) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  change("del", 77);
  next_event();
  const netns::Finished later = hosts.start("a", {"ibv_devinfo", "-v", "-d", "roce_eth0"}).wait();
  EXPECT_EQ(later.exit_code, 0);
  const std::string line = "GID[" + std::string(index_of(78) < 10 ? "  " : " ") + std::to_string(index_of(78)) + "]:";
  const std::size_t found = later.output.find(line);
  ASSERT_NE(found, std::string::npos) << later.output;
  EXPECT_NE(later.output.find("192.168.100.78", found), std::string::npos) << later.output;
}

}  // namespace
}  // namespace plugfest::roce
