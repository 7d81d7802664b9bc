// The send sockets of a port.
#include "fabric/roce/port/udp_port.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <set>

#include "fabric/roce/testing/two_nics.h"

namespace plugfest::roce {
namespace {

std::ptrdiff_t open_descriptors() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

TEST(UdpPort, OpensAllSendSocketsAtOnce) {
  UdpPort port(address_of(loopback_address(9)), 0);
  const std::uint16_t first = port.send_socket(0).port();
  const std::ptrdiff_t descriptors = open_descriptors();
  std::set<std::uint16_t> ports;
  for (std::uint32_t number = 0; number < 64; ++number) ports.insert(port.send_socket(number).port());
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(ports.size(), UdpPort::kSendSockets);
  EXPECT_EQ(port.send_socket(0).port(), first);
}

}  // namespace
}  // namespace plugfest::roce
