#include "fabric/roce/verbs/device/gid_table.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include "fabric/system/file.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

namespace fs = std::filesystem;

Address address(int last) {
  in_addr ipv4 = {};
  inet_pton(AF_INET, ("10.0.0." + std::to_string(last)).c_str(), &ipv4);
  return ipv4;
}

// Up to three addresses, and the first IPv4 address again.
GidEntries entries(std::initializer_list<Address> first) {
  GidEntries all = {};
  std::copy(first.begin(), first.end(), all.begin());
  const auto used = std::find_if(all.begin(), all.end(), [](const Address& entry) { return entry.is_ipv4(); });
  if (used != all.end()) all[kIpv4Index] = *used;
  return all;
}

TEST(GidEntries, HoldAddressesInOrder) {
  const Address addresses[] = {address(1), address(2)};
  EXPECT_EQ(updated_entries({}, addresses), entries({address(1), address(2)}));
}

TEST(GidEntries, BecomeEmptyWhenTheirAddressIsRemoved) {
  const Address left[] = {address(2)};
  EXPECT_EQ(updated_entries(entries({address(1), address(2)}), left), entries({Address(), address(2)}));
}

TEST(GidEntries, TakeNewAddressesIfTheyAreEmpty) {
  const Address addresses[] = {address(2), address(3), address(4)};
  EXPECT_EQ(updated_entries(entries({address(1), address(2)}), addresses),
            entries({address(3), address(2), address(4)}));
}

TEST(GidEntries, RepeatTheFirstIpv4AddressAtIndexThree) {
  in6_addr ipv6 = {};
  inet_pton(AF_INET6, "fd00::1", &ipv6);
  const Address addresses[] = {ipv6, address(1), address(2), address(3)};
  const GidEntries table = updated_entries({}, addresses);
  EXPECT_EQ(table[3], address(1));
  EXPECT_EQ(table[4], address(3));
  const Address left[] = {ipv6, address(3)};
  EXPECT_EQ(updated_entries(table, left)[3], address(3));
  EXPECT_EQ(updated_entries(table, {addresses, 1}), entries({ipv6}));
}

TEST(GidEntries, OmitAddressesBeyondTheTableSize) {
  std::vector<Address> addresses;
  for (int i = 0; i < static_cast<int>(kGidTableSize); ++i) addresses.push_back(address(i));
  const GidEntries full = updated_entries({}, addresses);
  EXPECT_TRUE(std::equal(full.begin(), full.begin() + kIpv4Index, addresses.begin()));
  EXPECT_TRUE(std::equal(full.begin() + kIpv4Index + 1, full.end(), addresses.begin() + kIpv4Index));
  addresses.erase(addresses.begin());
  EXPECT_EQ(updated_entries(full, addresses)[0], addresses.back());
}

class GidFiles : public testing::Test {
 protected:
  GidFiles() { make_gid_files(device_); }

  std::string text(const std::string& file) const { return read_file(device_ / "ports/1" / file); }

  const Address both_[2] = {address(1), address(2)};
  const std::span<const Address> second_{both_ + 1, 1};
  ScratchFolder device_;
};

constexpr const char* kNoGid = "0000:0000:0000:0000:0000:0000:0000:0000\n";

TEST_F(GidFiles, ExistForAllEntries) {
  for (const char* index : {"0", "15"}) {
    EXPECT_EQ(text(std::string("gids/") + index), kNoGid);
    EXPECT_TRUE(fs::exists(device_ / "ports/1/gid_attrs/types" / index));
    EXPECT_EQ(text(std::string("gid_attrs/types/") + index), "");
    EXPECT_TRUE(fs::exists(device_ / "ports/1/gid_attrs/ndevs" / index));
  }
  EXPECT_FALSE(fs::exists(device_ / "ports/1/gids/16"));
}

TEST_F(GidFiles, AreUpdatedWithTheAddresses) {
  GidTable table(device_, "eth0");
  table.update(both_, false);
  EXPECT_EQ(text("gids/1"), "0000:0000:0000:0000:0000:ffff:0a00:0002\n");
  EXPECT_EQ(text("gid_attrs/types/1"), "RoCE v2\n");
  EXPECT_EQ(text("gid_attrs/ndevs/1"), "eth0\n");
  table.update(second_, false);
  EXPECT_EQ(text("gids/0"), kNoGid);
  EXPECT_EQ(text("gid_attrs/types/0"), "");
  EXPECT_EQ(text("gids/1"), "0000:0000:0000:0000:0000:ffff:0a00:0002\n");
}

TEST_F(GidFiles, KeepTheNewestSnapshotOfTheAddresses) {
  GidTable table(device_, "eth0");
  table.update(second_, true, 2);
  EXPECT_EQ(table.update(both_, true, 1), entries({address(2)}));
  EXPECT_EQ(text("gids/1"), kNoGid);
  EXPECT_EQ(table.update(both_, true, 3), entries({address(2), address(1)}));
}

TEST_F(GidFiles, AreSharedWithLaterProcesses) {
  GidTable first(device_, "eth0");
  first.update(both_, false);
  first.update(second_, false);
  GidTable later(device_, "eth0");
  EXPECT_EQ(later.update(second_, true), entries({Address(), address(2)}));
  make_gid_files(device_);  // as if the view were written again
  EXPECT_EQ(later.update(second_, true), entries({Address(), address(2)}));
}

TEST_F(GidFiles, AreWrittenOnceNoOtherProcessHoldsTheLock) {
  Descriptor held(open((device_ / ".gids").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(held.get(), F_OFD_SETLK, &whole), 0);
  GidTable table(device_, "eth0");
  const Address addresses[] = {address(1)};
  EXPECT_EQ(table.update(addresses, true), entries({address(1)}));
  EXPECT_EQ(text("gids/0"), kNoGid);
  held.close();
  EXPECT_EQ(table.update(addresses, false), entries({address(1)}));
  EXPECT_EQ(text("gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
}

TEST_F(GidFiles, AreOptional) {
  GidTable table(device_ / "absent", "eth0");
  table.update(both_, false);
  EXPECT_EQ(table.update(second_, true), entries({Address(), address(2)}));
  EXPECT_EQ(table.entries(), entries({Address(), address(2)}));
}

}  // namespace
}  // namespace plugfest::roce::verbs
