// The plugin's devices: network interfaces with an IPv4 address.
#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

namespace example {

struct Device {
  std::string name;  ///< "eth0"
  in_addr address{};
};

/// All interfaces that are up, except loopback. The first call looks them up.
const std::vector<Device>& devices();

}  // namespace example
