#include "plugins/mesh/device/path.h"

#include <gtest/gtest.h>

namespace mesh {
namespace {

NetworkAddress network(const std::string& address, int prefix) { return {parse_address(address), prefix}; }

std::optional<Address> no_route(const Address&) { return std::nullopt; }

std::vector<std::string> texts(const std::vector<Path>& paths) {
  std::vector<std::string> all;
  for (const Path& path : paths)
    all.push_back(std::to_string(path.device) + ": " + to_string(path.local) + " > " + to_string(path.peer));
  return all;
}

using Texts = std::vector<std::string>;

// Host a of the triangle: subnet 192.168.100.0/24 is the link to c, 192.168.101.0/24 the link to b.
const std::vector<LocalAddress> kHostA = {{network("192.168.100.2", 24), 0}, {network("192.168.101.2", 24), 1}};
const std::vector<PeerAddress> kHostB = {{network("192.168.102.2", 24), true}, {network("192.168.101.3", 24), false}};

TEST(PathTest, UsesTheNicOnThePeersSubnet) {
  EXPECT_EQ(texts(find_paths(kHostA, {0}, kHostB, no_route)), Texts{"1: 192.168.101.2 > 192.168.101.3"});
}

TEST(PathTest, PrefersTheConnectingAndListeningDevices) {
  const std::vector<LocalAddress> local = {{network("10.0.0.1", 24), 0}, {network("10.0.1.1", 24), 1}};
  const std::vector<PeerAddress> peer = {{network("10.0.0.2", 24), false}, {network("10.0.1.2", 24), true}};
  EXPECT_EQ(texts(find_paths(local, {1}, peer, no_route)), (Texts{"1: 10.0.1.1 > 10.0.1.2", "0: 10.0.0.1 > 10.0.0.2"}));
  EXPECT_EQ(texts(find_paths(local, {0}, peer, no_route)), (Texts{"0: 10.0.0.1 > 10.0.0.2", "1: 10.0.1.1 > 10.0.1.2"}));
}

TEST(PathTest, UsesTheSubnetWithTheLongestPrefix) {
  const std::vector<LocalAddress> local = {{network("10.0.0.1", 8), 0}, {network("10.1.1.1", 24), 1}};
  const std::vector<PeerAddress> peer = {{network("10.1.1.2", 8), true}};
  EXPECT_EQ(texts(find_paths(local, {0}, peer, no_route)), Texts{"1: 10.1.1.1 > 10.1.1.2"});
  // The prefix decides for each address of the peer, and not between its addresses.
  const std::vector<LocalAddress> wide = {{network("10.0.0.1", 16), 0}, {network("10.1.0.1", 24), 1}};
  const std::vector<PeerAddress> both = {{network("10.0.0.2", 16), true}, {network("10.1.0.2", 24), false}};
  EXPECT_EQ(texts(find_paths(wide, {0}, both, no_route)), (Texts{"0: 10.0.0.1 > 10.0.0.2", "1: 10.1.0.1 > 10.1.0.2"}));
}

TEST(PathTest, UsesEveryAddressOfANic) {
  const std::vector<LocalAddress> local = {
      {network("10.0.0.1", 24), 0}, {network("10.9.0.1", 24), 0}, {network("fd00::1", 64), 0}};
  EXPECT_EQ(texts(find_paths(local, {0}, {{network("10.9.0.2", 24), true}}, no_route)),
            Texts{"0: 10.9.0.1 > 10.9.0.2"});
  EXPECT_EQ(texts(find_paths(local, {0}, {{network("fd00::2", 64), true}}, no_route)), Texts{"0: fd00::1 > fd00::2"});
}

TEST(PathTest, PrefersTheListeningDeviceWhenAllShareOneSubnet) {
  const std::vector<LocalAddress> local = {{network("10.0.0.1", 16), 0}, {network("10.0.0.2", 16), 1}};
  const std::vector<PeerAddress> peer = {{network("10.0.0.3", 16), false}, {network("10.0.0.4", 16), true}};
  EXPECT_EQ(texts(find_paths(local, {1}, peer, no_route)).front(), "1: 10.0.0.2 > 10.0.0.4");
}

TEST(PathTest, UsesTheNicOfTheKernelsRoute) {
  const std::vector<PeerAddress> far = {{network("10.1.0.1", 24), true}, {network("10.2.0.1", 24), false}};
  const auto route = [](const Address& peer) -> std::optional<Address> {
    if (peer == parse_address("10.2.0.1")) return parse_address("192.168.101.2");
    return parse_address("172.17.0.1");  // not a NIC's address
  };
  const std::vector<Path> paths = find_paths(kHostA, {0}, far, route);
  EXPECT_EQ(texts(paths), Texts{"1: 192.168.101.2 > 10.2.0.1"});
  EXPECT_FALSE(paths.front().one_subnet);
}

TEST(PathTest, ParallelPathsShareNeitherNicNorPeerAddress) {
  const std::vector<LocalAddress> local = {
      {network("10.0.0.1", 24), 0}, {network("10.0.1.1", 24), 1}, {network("10.0.2.1", 24), 2}};
  const std::vector<PeerAddress> peer = {{network("10.0.0.2", 24), true},
                                         {network("10.0.0.3", 24), false},
                                         {network("10.0.1.2", 24), false},
                                         {network("10.0.2.2", 24), false}};
  const std::vector<Path> paths = find_paths(local, {0}, peer, no_route);
  EXPECT_EQ(texts(parallel_paths(paths, 0, {0}, 4)),
            (Texts{"0: 10.0.0.1 > 10.0.0.2", "1: 10.0.1.1 > 10.0.1.2", "2: 10.0.2.1 > 10.0.2.2"}));
  EXPECT_EQ(texts(parallel_paths(paths, 1, {0}, 2)), (Texts{"0: 10.0.0.1 > 10.0.0.3", "1: 10.0.1.1 > 10.0.1.2"}));
  EXPECT_EQ(texts(parallel_paths(paths, 0, {0}, 1)), Texts{"0: 10.0.0.1 > 10.0.0.2"});
  std::vector<Path> routed = paths;
  routed[0].one_subnet = false;
  EXPECT_EQ(parallel_paths(routed, 0, {0}, 4).size(), 1u);
}

TEST(PathTest, ParallelPathsOfAVirtualDeviceUseItsNicsOrNoneOfThem) {
  const std::vector<LocalAddress> local = {
      {network("10.0.0.1", 24), 0}, {network("10.0.1.1", 24), 1}, {network("10.0.2.1", 24), 2}};
  const std::vector<PeerAddress> peer = {
      {network("10.0.0.2", 24), true}, {network("10.0.1.2", 24), false}, {network("10.0.2.2", 24), false}};
  const std::vector<Path> paths = find_paths(local, {2, 0}, peer, no_route);
  EXPECT_EQ(texts(parallel_paths(paths, 0, {2, 0}, 4)), (Texts{"0: 10.0.0.1 > 10.0.0.2", "2: 10.0.2.1 > 10.0.2.2"}));
  const std::vector<Path> others = find_paths(local, {2, 7}, peer, no_route);
  EXPECT_EQ(texts(parallel_paths(others, 1, {2, 7}, 4)), (Texts{"0: 10.0.0.1 > 10.0.0.2", "1: 10.0.1.1 > 10.0.1.2"}));
}

TEST(PathTest, FindsNoPathWithoutSubnetAndRoute) {
  EXPECT_TRUE(find_paths(kHostA, {0}, {{network("10.1.0.1", 24), true}}, no_route).empty());
  EXPECT_TRUE(find_paths(kHostA, {0}, {{network("fd00::1", 64), true}}, no_route).empty());
}

TEST(PathTest, OneSubnetRequiresBothPrefixLengths) {
  EXPECT_TRUE(on_one_subnet(network("10.0.1.1", 16), network("10.0.1.2", 24)));
  EXPECT_FALSE(on_one_subnet(network("10.0.1.1", 16), network("10.0.2.2", 24)));
  EXPECT_TRUE(on_one_subnet(network("10.0.0.1", 31), network("10.0.0.0", 31)));
  EXPECT_FALSE(on_one_subnet(network("10.0.0.1", 32), network("10.0.0.2", 32)));
  EXPECT_TRUE(on_one_subnet(network("fd00::1", 64), network("fd00::2", 64)));
  EXPECT_FALSE(on_one_subnet(network("fd00:0:0:1::1", 64), network("fd00:0:0:2::2", 64)));
}

TEST(PathTest, SubnetsTextContainsEachSubnetOnce) {
  EXPECT_EQ(subnets_text({network("192.168.100.2", 24), network("192.168.100.3", 24), network("10.1.2.3", 30)}),
            "192.168.100.0/24, 10.1.2.0/30");
  EXPECT_EQ(subnets_text({}), "none");
}

TEST(PathTest, KernelRouteToLoopbackUsesLoopback) {
  EXPECT_EQ(kernel_route(parse_address("127.0.0.1")), parse_address("127.0.0.1"));
}

}  // namespace
}  // namespace mesh
