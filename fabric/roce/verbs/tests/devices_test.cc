// The device list, queries of ports and GIDs, and their files in the sysfs view.
#include <dlfcn.h>

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

TEST(Devices, HaveTheSpeedOfARateLimit) {
  TwoHosts hosts;
  const Finished info = hosts
                            .start("a", {"sh", "-c",
                                         "tc qdisc add dev eth0 root tbf rate 100gbit burst 13mb limit 20mb && "
                                         "ibv_devinfo -v -d roce_eth0 && ibv_devinfo -v -d roce_eth1 && "
                                         "tc qdisc add dev eth1 root tbf rate 20gbit burst 3mb limit 20mb && "
                                         "ibv_devinfo -v -d roce_eth1"})
                            .wait();
  EXPECT_EQ(info.exit_code, 0) << info.output;
  const auto limited = info.output.find("active_speed:\t\t25.0 Gbps (32)");
  EXPECT_NE(limited, std::string::npos) << info.output;
  const auto unlimited = info.output.find("active_speed:\t\t10.0 Gbps (8)", limited);
  EXPECT_NE(unlimited, std::string::npos) << info.output;
  EXPECT_NE(info.output.find("active_speed:\t\t5.0 Gbps (2)", unlimited), std::string::npos) << info.output;
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
    // If the kernel has IPv6, the link-local address follows. The other entries are empty, but for index 3.
    std::vector<ibv_gid_entry> table(static_cast<std::size_t>(port.gid_tbl_len));
    const ssize_t found = ibv_query_gid_table(context_, table.data(), table.size(), 0);
    ASSERT_GE(found, 2);
    table.resize(static_cast<std::size_t>(found));
    EXPECT_EQ(table.back().gid_index, 3u);
    EXPECT_EQ(std::memcmp(table.back().gid.raw, expected, sizeof(expected)), 0);
    table.pop_back();
    for (std::size_t i = 0; i < table.size(); ++i) EXPECT_EQ(table[i].gid_index, i);
    for (std::size_t i = 1; i < table.size(); ++i) EXPECT_EQ(table[i].gid.raw[0], 0xfe);
    EXPECT_EQ(ibv_query_gid_table(context_, table.data(), static_cast<std::size_t>(found - 1), 0), -EINVAL);
    EXPECT_EQ(ibv_query_gid_ex(context_, 1, 4, &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(context_, 1, static_cast<std::uint32_t>(port.gid_tbl_len), &entry, 0), EINVAL);
    ibv_gid empty = {.raw = {1}};
    EXPECT_EQ(ibv_query_gid(context_, 1, port.gid_tbl_len - 1, &empty), 0);
    EXPECT_EQ(empty.global.subnet_prefix | empty.global.interface_id, 0u);
    EXPECT_EQ(ibv_query_gid(context_, 1, port.gid_tbl_len, &empty), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_query_gid(context_, 1, -1, &empty), -1);
  });
}

class SysfsFiles : public OpenDevice {
 protected:
  std::string content(const std::string& file) {
    return hosts_.start("a", {"cat", "/sys/class/infiniband/roce_eth0/ports/1/" + file}).wait().output;
  }
};

TEST_F(SysfsFiles, ShowTheGidOfAnAddressWhileItExists) {
  const std::string gid = "0000:0000:0000:0000:0000:ffff:c0a8:644d\n";
  const auto change = [&](const char* what) {
    ASSERT_EQ(hosts_.start("a", {"ip", "address", what, "192.168.100.77/24", "dev", "eth0"}).wait().exit_code, 0);
    EXPECT_EQ(next_event().event_type, IBV_EVENT_GID_CHANGE);
  };
  change("add");
  // If the kernel has IPv6, the link-local address has index 1.
  const std::string index = content("gids/1") == gid ? "1" : "2";
  EXPECT_EQ(content("gids/" + index), gid);
  EXPECT_EQ(content("gid_attrs/types/" + index), "RoCE v2\n");
  change("del");
  EXPECT_EQ(content("gids/" + index), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(content("gid_attrs/types/" + index), "");
}

TEST_F(SysfsFiles, ShowTheStateOfThePort) {
  EXPECT_EQ(content("state"), "4: ACTIVE\n");
  hosts_.fabric().set_interface_up("b", "eth0", false);
  while (next_event().event_type != IBV_EVENT_PORT_ERR) continue;
  EXPECT_EQ(content("state"), "1: DOWN\n");
}

}  // namespace
}  // namespace plugfest::roce::verbs
