#include "fabric/roce/port/port_map.h"

#include <sys/resource.h>

#include <array>
#include <span>

#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

class PortMapTest : public testing::Test {
 protected:
  static constexpr std::uint8_t kOwnSlot = 3;

  // Expects the probes with the numbers from `first` to `end` - 1, and no other packet.
  void expect_probes(std::uint8_t first, std::uint8_t end) {
    std::array<std::byte, 100> packet;
    for (std::uint8_t number = first; number < end; ++number) {
      const ssize_t length = recv(receiver_.get(), packet.data(), packet.size(), 0);
      ASSERT_GT(length, 0);
      const std::span bytes = std::span(packet).first(static_cast<std::size_t>(length));
      const auto probe = PortMap::decode(bytes);
      ASSERT_TRUE(probe.has_value());
      EXPECT_EQ(probe->number, number);
      EXPECT_EQ(probe->asker, kOwnSlot);
      nonce_ = probe->nonce;
      EXPECT_FALSE(PortMap::decode(bytes.first(bytes.size() - 1)));
    }
    EXPECT_LT(recv(receiver_.get(), packet.data(), packet.size(), MSG_DONTWAIT), 0);
  }

  bool learn(std::uint8_t slot, std::uint8_t number, std::uint32_t nonce_change = 0) {
    return map_.learn({nonce_ ^ nonce_change, slot, number}, sender_.get(), here_);
  }

  const std::string address_ = loopback_address(1);
  const SocketAddress here_{{Address(address_of(address_)), kRoceUdpPort}, 0};
  const Descriptor receiver_ = roce_socket(address_);
  const Descriptor sender_{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  PortMap map_;
  std::uint32_t nonce_ = 0;
};

TEST_F(PortMapTest, LearnsTheSmallestNumberThatEachSlotClaims) {
  map_.probe(sender_.get(), here_, kOwnSlot, 0);
  map_.probe(sender_.get(), here_, kOwnSlot, 19'999'999);  // too early
  expect_probes(0, 16);
  EXPECT_FALSE(learn(1, 0)) << "known from the start";
  EXPECT_FALSE(learn(2, 5, 1)) << "an answer to another probe";
  EXPECT_FALSE(learn(2, 16)) << "no such probe was sent";
  EXPECT_TRUE(learn(2, 5));
  EXPECT_FALSE(learn(2, 6));
  EXPECT_TRUE(learn(2, 4));
}

TEST_F(PortMapTest, ProbesMoreNumbersIfAllHaveASocket) {
  map_.probe(sender_.get(), here_, kOwnSlot, 0);
  expect_probes(0, 16);
  for (std::uint8_t number = 0; number < 16; ++number) learn(number + 1, number);
  expect_probes(16, 32);
}

TEST(UdpPort, ProbesLaterIfNoSocketCanBeOpened) {
  UdpPort port(Address(address_of(loopback_address(1))), 0);
  std::vector<std::byte> buffer(UdpPort::kReceiveBytes);
  ReceivedBatch batch;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_NO_THROW(port.probe_sockets(PortMap::kFirstSlot, 0));
  EXPECT_NO_THROW(port.learn({}));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(port.receive(buffer.data(), batch));
  port.probe_sockets(PortMap::kFirstSlot, 0);
  EXPECT_TRUE(port.receive(buffer.data(), batch));
}

}  // namespace
}  // namespace plugfest::roce
