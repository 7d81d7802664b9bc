// The device list, queries of ports and GIDs, and GIDs that change.
#include <dlfcn.h>

#include "fabric/roce/verbs/device/gid_table.h"
#include "fabric/roce/verbs/tests/verbs_endpoint.h"

namespace plugfest::roce::verbs {
namespace {

// Calls `check` on host a with the list of its devices and their number.
template <typename Check>
void check_list(TwoHosts& hosts, const Check& check) {
  hosts.fabric().call("a", [&] {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    check(list, count);
    ibv_free_device_list(list);
  });
}

TEST(Devices, AreEqualInTwoLists) {
  TwoHosts hosts;
  hosts.fabric().call("a", [] {
    int count = 0;
    ibv_device** first = ibv_get_device_list(&count);
    ibv_device** second = ibv_get_device_list(nullptr);
    EXPECT_EQ(count, 2);
    for (int i = 0; i <= count; ++i) EXPECT_EQ(first[i], second[i]);
    ibv_free_device_list(first);
    EXPECT_STREQ(ibv_get_device_name(second[0]), "roce_eth0");  // the second list keeps the device
    ibv_free_device_list(second);
  });
}

TEST(Devices, HaveDistinctGuids) {
  TwoHosts hosts;
  check_list(hosts, [](ibv_device** list, int) {
    EXPECT_NE(ibv_get_device_guid(list[0]), 0u);
    EXPECT_NE(ibv_get_device_guid(list[0]), ibv_get_device_guid(list[1]));
  });
}

TEST(Devices, AreNotRecognizedByHardwareDrivers) {
  void* driver = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) GTEST_SKIP() << "needs libmlx5: " << dlerror();
  const auto is_supported = reinterpret_cast<bool (*)(ibv_device*)>(dlsym(driver, "mlx5dv_is_supported"));
  ASSERT_NE(is_supported, nullptr);
  TwoHosts hosts;
  check_list(hosts, [&](ibv_device** list, int) { EXPECT_FALSE(is_supported(list[0])); });
}

TEST(Devices, AreRestrictedByTheEnvironment) {
  TwoHosts hosts;
  setenv("PLUGFEST_ROCE_INTERFACES", "eth7,eth1", 1);
  check_list(hosts, [](ibv_device** list, int count) {
    EXPECT_EQ(count, 1);
    EXPECT_STREQ(ibv_get_device_name(list[0]), "roce_eth1");
  });
  unsetenv("PLUGFEST_ROCE_INTERFACES");
}

using Queries = OpenDevice;

TEST_F(Queries, ReturnTheRoceGidAndTheDefaultPKey) {
  hosts_.fabric().call("a", [&] {
    ibv_gid_entry entry = {};
    EXPECT_EQ(ibv_query_gid_ex(context_, 1, 0, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
    const std::uint8_t expected[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 100, 1};
    EXPECT_EQ(std::memcmp(entry.gid.raw, expected, sizeof(expected)), 0);
    EXPECT_EQ(ibv_query_gid_ex(context_, 2, 0, &entry, 0), EINVAL);
    __be16 pkey = 0;
    EXPECT_EQ(ibv_query_pkey(context_, 1, 0, &pkey), 0);
    EXPECT_EQ(pkey, 0xffff);
    EXPECT_EQ(ibv_query_pkey(context_, 1, 1, &pkey), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_get_pkey_index(context_, 1, pkey), 0);
    ibv_port_attr port = {};
    EXPECT_EQ(ibv_query_port(context_, 2, &port), EINVAL);
    EXPECT_EQ(ibv_query_port(context_, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    // If the kernel has IPv6, the link-local address follows. The other entries are empty.
    std::vector<ibv_gid_entry> table(static_cast<std::size_t>(port.gid_tbl_len));
    const ssize_t found = ibv_query_gid_table(context_, table.data(), table.size(), 0);
    ASSERT_GE(found, 1);
    for (ssize_t i = 0; i < found; ++i) EXPECT_EQ(table[static_cast<std::size_t>(i)].gid_index, i);
    for (ssize_t i = 1; i < found; ++i) EXPECT_EQ(table[static_cast<std::size_t>(i)].gid.raw[0], 0xfe);
    EXPECT_EQ(ibv_query_gid_table(context_, table.data(), static_cast<std::size_t>(found - 1), 0), -EINVAL);
    EXPECT_EQ(ibv_query_gid_ex(context_, 1, static_cast<std::uint32_t>(found), &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(context_, 1, static_cast<std::uint32_t>(port.gid_tbl_len), &entry, 0), EINVAL);
    ibv_gid empty = {.raw = {1}};
    EXPECT_EQ(ibv_query_gid(context_, 1, port.gid_tbl_len - 1, &empty), 0);
    EXPECT_EQ(empty.global.subnet_prefix | empty.global.interface_id, 0u);
    EXPECT_EQ(ibv_query_gid(context_, 1, port.gid_tbl_len, &empty), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_query_gid(context_, 1, -1, &empty), -1);
  });
}

constexpr const char* kGids = "/sys/class/infiniband/roce_eth0/ports/1/gids/";
constexpr const char* kTypes = "/sys/class/infiniband/roce_eth0/ports/1/gid_attrs/types/";

class Gids : public OpenDevice {
 protected:
  Gids() {
    change("add", 77);
    index_of_77_ = index_of(77);
    change("add", 78);
  }

  // Adds or deletes an address and waits for the event.
  void change(const std::string& what, int last_byte) {
    const std::string address = "192.168.100." + std::to_string(last_byte) + "/24";
    ASSERT_EQ(hosts_.start("a", {"ip", "address", what, address, "dev", "eth0"}).wait().exit_code, 0);
    EXPECT_EQ(next_event().event_type, IBV_EVENT_GID_CHANGE);
  }

  ibv_gid gid_at(int index) {
    ibv_gid gid = {};
    hosts_.fabric().call("a", [&] { EXPECT_EQ(ibv_query_gid(context_, 1, index, &gid), 0); });
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

  std::string content(const std::string& file) { return hosts_.start("a", {"cat", file}).wait().output; }

  int index_of_77_ = -1;
};

TEST_F(Gids, KeepTheirIndexWhenAnotherIsRemoved) {
  ASSERT_GT(index_of_77_, 0);
  const int index_of_78 = index_of(78);
  EXPECT_EQ(index_of_78, index_of_77_ + 1);
  change("del", 77);
  EXPECT_EQ(index_of(78), index_of_78);
  EXPECT_EQ(index_of(1), 0);
  const ibv_gid empty = gid_at(index_of_77_);
  EXPECT_EQ(empty.global.subnet_prefix | empty.global.interface_id, 0u);
  change("add", 79);
  EXPECT_EQ(index_of(79), index_of_77_);
}

TEST_F(Gids, AreUpdatedInTheSysfsView) {
  const std::string index = std::to_string(index_of_77_);
  EXPECT_EQ(content(kGids + index), "0000:0000:0000:0000:0000:ffff:c0a8:644d\n");
  EXPECT_EQ(content(kTypes + index), "RoCE v2\n");
  change("del", 77);
  EXPECT_EQ(content(kGids + index), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(content(kTypes + index), "");
}

using PortState = OpenDevice;

TEST_F(PortState, IsUpdatedInTheSysfsView) {
  const auto state = [&] {
    return hosts_.start("a", {"cat", "/sys/class/infiniband/roce_eth0/ports/1/state"}).wait().output;
  };
  EXPECT_EQ(state(), "4: ACTIVE\n");
  hosts_.fabric().set_interface_up("b", "eth0", false);
  while (next_event().event_type != IBV_EVENT_PORT_ERR) continue;
  EXPECT_EQ(state(), "1: DOWN\n");
}

TEST_F(Gids, AreTheSameInALaterProcess) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  change("del", 77);
  const Finished later = hosts_.start("a", {"ibv_devinfo", "-v", "-d", "roce_eth0"}).wait();
  EXPECT_EQ(later.exit_code, 0);
  const std::string line = "GID[" + std::string(index_of(78) < 10 ? "  " : " ") + std::to_string(index_of(78)) + "]:";
  const std::size_t found = later.output.find(line);
  ASSERT_NE(found, std::string::npos) << later.output;
  EXPECT_NE(later.output.find("192.168.100.78", found), std::string::npos) << later.output;
}

}  // namespace
}  // namespace plugfest::roce::verbs
