#include "fabric/topology/host_names.h"

#include <gtest/gtest.h>

namespace plugfest::topology {
namespace {

// a, b and c with the subnets 192.168.100.0/24 (a, b), .101.0 (a, c) and .102.0 (b, c).
const Graph kTriangle = named("triangle");
constexpr const char* kAll =
    "192.168.100.1 a\n192.168.101.1 a\n192.168.100.2 b\n192.168.102.1 b\n192.168.101.2 c\n192.168.102.2 c\n";

TEST(HostNames, PreferAddressesInTheSubnetsOfTheHost) {
  const HostNames names(kTriangle, false);
  EXPECT_EQ(names.seen_by(kTriangle.hosts[0]), std::string("192.168.100.1 a\n") + kAll);
  EXPECT_EQ(names.seen_by(kTriangle.hosts[1]), std::string("192.168.100.2 b\n192.168.102.2 c\n") + kAll);
  EXPECT_EQ(names.seen_by(kTriangle.hosts[2]),
            std::string("192.168.101.2 c\n192.168.101.1 a\n192.168.102.1 b\n") + kAll);
}

TEST(HostNames, PreferOutOfBandAddressesOfOtherHosts) {
  EXPECT_EQ(HostNames(kTriangle, true).seen_by(kTriangle.hosts[2]),
            std::string("192.168.101.2 c\n10.255.0.1 a\n10.255.0.2 b\n10.255.0.3 c\n") + kAll);
}

}  // namespace
}  // namespace plugfest::topology
