// Finds the address of an RDMA device.
#pragma once

#include <netinet/in.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace plugfest::sharp_coll {

/// An RDMA port and its address.
struct DevicePort {
  std::string device;  ///< roce_eth0
  int port = 1;
  in_addr address = {};
};

/// Returns the first port of `list` ("DEV:PORT[,DEV:PORT…]"; without ":PORT", port 1) and the first IPv4 address in its
/// GID table. An empty list means the first device by name. `class_infiniband`: the folder of devices in sysfs.
/// Errors: Failure with EDEV, or EINVAL if the list cannot be parsed.
DevicePort find_device_port(std::string_view list,
                            const std::filesystem::path& class_infiniband = "/sys/class/infiniband");

}  // namespace plugfest::sharp_coll
