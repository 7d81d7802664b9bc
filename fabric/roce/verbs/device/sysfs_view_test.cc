#include "fabric/roce/verbs/device/sysfs_view.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>

#include <fstream>

#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

namespace fs = std::filesystem;

Interface ethernet() {
  Interface interface;
  interface.name = "eth3";
  interface.index = 7;
  interface.mac = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
  in_addr address = {};
  inet_pton(AF_INET, "192.168.100.1", &address);
  interface.addresses = {address};
  interface.mtu_bytes = 9000;
  interface.up = true;
  interface.speed_mbps = 10000;
  return interface;
}

class SysfsView : public testing::Test {
 protected:
  SysfsView() { write_sysfs_view(root_, {{ethernet()}}); }

  std::string text(const std::string& file) const { return read_file(root_ / "roce_eth3" / file); }

  ScratchFolder root_;
};

TEST_F(SysfsView, ShowsTheDevice) {
  EXPECT_EQ(text("node_guid"), "0011:22ff:fe33:4455\n");
  EXPECT_EQ(text("sys_image_guid"), text("node_guid"));
  EXPECT_EQ(text("node_type"), "1: CA\n");
}

TEST_F(SysfsView, ShowsAPciFunction) {
  EXPECT_EQ(fs::canonical(root_ / "roce_eth3" / "device").filename(), "0000:07:00.0");
  EXPECT_TRUE(fs::is_symlink(root_ / "roce_eth3" / "device" / "net" / "eth3"));
  EXPECT_EQ(fs::canonical(root_ / "roce_eth3" / "device" / "subsystem").filename(), "pci");
  EXPECT_EQ(text("device/class"), "0x020000\n");
  EXPECT_EQ(text("device/vendor"), "0xfffe\n");
  EXPECT_EQ(text("device/device"), "0x0001\n");
  EXPECT_EQ(text("device/numa_node"), "0\n");
  EXPECT_EQ(text("device/max_link_speed"), "16.0 GT/s PCIe\n");
  EXPECT_EQ(text("device/max_link_width"), "16\n");
}

TEST_F(SysfsView, ShowsAPortWithoutCarrierAsDownWhenWrittenAgain) {
  Interface interface = ethernet();
  interface.up = false;
  write_sysfs_view(root_, {{interface}});
  EXPECT_EQ(text("ports/1/state"), "1: DOWN\n");
}

TEST_F(SysfsView, ShowsThePort) {
  EXPECT_EQ(text("ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(text("ports/1/phys_state"), "5: LinkUp\n");
  EXPECT_EQ(text("ports/1/rate"), "10 Gb/sec (1X FDR10)\n");
  EXPECT_EQ(text("ports/1/link_layer"), "Ethernet\n");
  EXPECT_EQ(text("ports/1/pkeys/0"), "0xffff\n");
}

TEST_F(SysfsView, ShowsTheGidWithTypeAndInterface) {
  EXPECT_EQ(text("ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:c0a8:6401\n");
  EXPECT_EQ(text("ports/1/gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(text("ports/1/gid_attrs/ndevs/0"), "eth3\n");
}

TEST_F(SysfsView, ReportsTheFileThatCannotBeWritten) {
  const ScratchFolder other;
  std::ofstream(other / "roce_eth3") << "in the way";
  EXPECT_THAT(error_message([&] { write_sysfs_view(other, {{ethernet()}}); }),
              testing::HasSubstr("/roce_eth3: cannot create: "));
}

TEST(Port, ActiveMtuIncludesTheHeaders) {
  EXPECT_EQ(active_mtu(1500), IBV_MTU_1024);
  EXPECT_EQ(active_mtu(4175), IBV_MTU_2048);
  EXPECT_EQ(active_mtu(4176), IBV_MTU_4096);
  EXPECT_EQ(active_mtu(9000), IBV_MTU_4096);
  EXPECT_EQ(active_mtu(576), IBV_MTU_256);
}

TEST(Port, SpeedDoesNotExceedTheLinkSpeed) {
  EXPECT_STREQ(link_speed(10000).text, "10 Gb/sec (1X FDR10)");
  EXPECT_STREQ(link_speed(30000).text, "25 Gb/sec (1X EDR)");
  EXPECT_STREQ(link_speed(100).text, "2.5 Gb/sec (1X SDR)");
  EXPECT_STREQ(link_speed(0).text, "10 Gb/sec (1X FDR10)");  // the interface reports none
}

}  // namespace
}  // namespace plugfest::roce::verbs
