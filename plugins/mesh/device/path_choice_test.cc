// The choice of paths from the fake NIC, whose addresses change.
#include "plugins/mesh/device/path.h"

#include <gtest/gtest.h>

#include "plugins/mesh/testing/fake_verbs.h"

namespace mesh {
namespace {

PeerAddress peer(const std::string& address, int prefix) { return {{parse_address(address), prefix}, true}; }

// The paths from the current one on.
std::vector<std::string> rest_of(PathChoice& paths) {
  std::vector<std::string> texts;
  if (paths.empty()) return texts;
  do {
    texts.push_back(to_string(paths.current().local) + " > " + to_string(paths.current().peer));
  } while (paths.next());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(PathChoiceTest, StartsAtTheBestPathAfterEachSearch) {
  fake::nic() = {};
  PathChoice paths(find_devices({}), {0});
  EXPECT_TRUE(paths.empty());
  for (int i = 0; i < 2; ++i) {
    paths.find({peer("127.0.0.2", 8), peer("127.0.0.3", 8)});
    EXPECT_EQ(paths.parallel(1).front().peer, parse_address("127.0.0.2"));
    EXPECT_EQ(rest_of(paths), (Texts{"127.0.0.1 > 127.0.0.2", "127.0.0.1 > 127.0.0.3"}));
    EXPECT_EQ(paths.parallel(1).front().peer, parse_address("127.0.0.3"));
  }
}

TEST(PathChoiceTest, ReadsTheAddressesAgainOnce) {
  fake::nic() = {};
  fake::nic().gids = {"::1"};
  PathChoice paths(find_devices({}), {0});
  paths.find({peer("::1", 128)});
  EXPECT_EQ(rest_of(paths), Texts{"::1 > ::1"});
  fake::nic().gids = {"127.0.0.1"};
  paths.find({peer("::1", 128)});
  EXPECT_EQ(rest_of(paths), Texts{"::1 > ::1"}) << "addresses are read again only if there is no path";
  paths.find({peer("127.0.0.2", 8)});
  EXPECT_EQ(rest_of(paths), Texts{"127.0.0.1 > 127.0.0.2"});
  fake::nic().gids = {"::1"};
  EXPECT_FALSE(paths.refresh());
  paths.find({peer("::1", 128)});
  EXPECT_TRUE(paths.empty());
}

TEST(PathChoiceTest, AddsPathsOfTheRequestedDevice) {
  fake::nic() = {};
  PathChoice paths(find_devices({}), {3, 1});
  paths.add(parse_address("10.0.0.1"), parse_address("10.0.0.2"));
  EXPECT_EQ(paths.current().device, 3u);
  EXPECT_EQ(rest_of(paths), Texts{"10.0.0.1 > 10.0.0.2"});
}

}  // namespace
}  // namespace mesh
