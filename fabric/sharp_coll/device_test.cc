#include "fabric/sharp_coll/device.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "fabric/sharp_coll/failure.h"
#include "fabric/system/testing.h"

namespace plugfest::sharp_coll {
namespace {

class Devices : public ::testing::Test {
 protected:
  void add_gid(const std::string& device, int port, int index, const std::string& gid) {
    const std::filesystem::path gids = folder_ / device / "ports" / std::to_string(port) / "gids";
    std::filesystem::create_directories(gids);
    std::ofstream(gids / std::to_string(index)) << gid << '\n';
  }

  std::string address_of(const std::string& list) const {
    return inet_ntoa(find_device_port(list, folder_.path()).address);
  }

  std::string error_of(const std::string& list) const {
    try {
      find_device_port(list, folder_.path());
    } catch (const Failure& failure) {
      std::string text = failure.what();
      if (const std::size_t at = text.find(folder_.path().string()); at != std::string::npos)
        text.replace(at, folder_.path().string().size(), "FOLDER");
      return std::to_string(failure.code()) + " " + text;
    }
    return "no error";
  }

  ScratchFolder folder_;
};

TEST_F(Devices, AddressIsTheFirstIpv4GidOfTheFirstPortOfTheList) {
  add_gid("roce_eth0", 1, 0, "fe80:0000:0000:0000:0011:22ff:fe33:4455");
  add_gid("roce_eth0", 1, 1, "0000:0000:0000:0000:0000:ffff:c0a8:6401");
  add_gid("roce_eth0", 1, 2, "0000:0000:0000:0000:0000:ffff:c0a8:6402");
  add_gid("roce_eth1", 2, 0, "0000:0000:0000:0000:0000:ffff:0a00:0001");
  EXPECT_EQ(address_of("roce_eth0:1,roce_eth1:2"), "192.168.100.1");
  EXPECT_EQ(address_of("roce_eth1:2"), "10.0.0.1");
  EXPECT_EQ(address_of("roce_eth0"), "192.168.100.1");
  EXPECT_EQ(address_of(""), "192.168.100.1");
}

TEST_F(Devices, ErrorsSayWhatToDo) {
  EXPECT_EQ(error_of(""), "-9 no RDMA device in FOLDER: run the program with `plugfest fabric exec`");
  add_gid("roce_eth0", 1, 0, "fe80:0000:0000:0000:0011:22ff:fe33:4455");
  EXPECT_EQ(error_of("mlx5_0:1"), "-9 device mlx5_0 does not exist in FOLDER: choose one of roce_eth0");
  EXPECT_EQ(error_of("roce_eth0:1"),
            "-9 device roce_eth0: port 1 has no GID with an IPv4 address: give its interface an IPv4 address");
  EXPECT_EQ(error_of("roce_eth0:2"),
            "-9 device roce_eth0: port 2 has no GID with an IPv4 address: give its interface an IPv4 address");
  for (const char* const list : {":1", "roce_eth0:", "roce_eth0:x", "roce_eth0:0", "../roce_eth0:1", ","})
    EXPECT_EQ(error_of(list), "-10 device list \"" + std::string(list) + "\": expected DEVICE:PORT, as in roce_eth0:1");
}

}  // namespace
}  // namespace plugfest::sharp_coll
