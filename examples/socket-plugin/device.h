// Network interfaces with an IPv4 address, as devices.
#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

namespace example {

struct Device {
  std::string name;  ///< "eth0"
  in_addr address{};
};

/// All interfaces that are up but loopback, looked up once.
const std::vector<Device>& devices();

}  // namespace example
