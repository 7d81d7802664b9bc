#include "fabric/reduction/datagrams.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "fabric/system/file.h"

namespace plugfest::reduction {
namespace {

// A socket at a free port of 127.0.0.1, and its name.
struct Socket {
  Socket() : descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(name);
    EXPECT_EQ(bind(descriptor.get(), reinterpret_cast<sockaddr*>(&name), size), 0);
    EXPECT_EQ(getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  }

  // The first bytes and sizes of all packets that have arrived.
  std::vector<std::pair<int, std::size_t>> received() const {
    std::vector<std::pair<int, std::size_t>> all;
    std::array<std::byte, 65536> buffer;
    for (ssize_t size; (size = recv(descriptor.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)) >= 0;)
      all.emplace_back(static_cast<int>(buffer[0]), static_cast<std::size_t>(size));
    return all;
  }

  Descriptor descriptor;
  sockaddr_in name = {};
};

TEST(Datagrams, ArriveOneByOneAtTheirReceivers) {
  const Socket sender, first, second;
  // By receiver: 1 or 2; runs of one size, a smaller last one, a larger one, and more than one message can carry.
  const std::vector<std::pair<int, std::size_t>> packets = {
      {1, 8228}, {1, 8228}, {1, 100},  {1, 8228}, {2, 8228}, {2, 8228}, {1, 36},   {1, 8228}, {2, 8000},
      {2, 8000}, {2, 8000}, {2, 8000}, {2, 8000}, {2, 8000}, {2, 8000}, {2, 8000}, {2, 8000}, {2, 8000}};
  std::vector<std::vector<std::byte>> contents;
  std::vector<Datagram> datagrams;
  std::vector<std::pair<int, std::size_t>> expected[2];
  for (const auto& [receiver, size] : packets) {
    const auto number = static_cast<int>(contents.size());
    contents.emplace_back(size, static_cast<std::byte>(number));
    expected[receiver - 1].emplace_back(number, size);
  }
  for (std::size_t i = 0; i < packets.size(); ++i)
    datagrams.push_back({contents[i], packets[i].first == 1 ? &first.name : &second.name});
  EXPECT_EQ(send_datagrams(sender.descriptor.get(), datagrams), packets.size());
  EXPECT_EQ(first.received(), expected[0]);
  EXPECT_EQ(second.received(), expected[1]);
}

TEST(Datagrams, NeedNoReceiverOnAConnectedSocket) {
  const Socket sender, receiver;
  ASSERT_EQ(connect(sender.descriptor.get(), reinterpret_cast<const sockaddr*>(&receiver.name), sizeof(sockaddr_in)),
            0);
  const std::vector<std::byte> content(1000, std::byte{7});
  const std::vector<Datagram> datagrams(kMaxDatagrams, Datagram{.bytes = content});
  EXPECT_EQ(send_datagrams(sender.descriptor.get(), datagrams), kMaxDatagrams);
  EXPECT_EQ(receiver.received(), (std::vector<std::pair<int, std::size_t>>(kMaxDatagrams, {7, 1000})));
}

TEST(Datagrams, AreLostIfTheyCannotBeSent) {
  const Socket sender, receiver;
  const std::vector<std::byte> too_long(70000), content(100, std::byte{1});
  const std::vector<Datagram> datagrams = {{too_long, &receiver.name}, {content, &receiver.name}};
  EXPECT_EQ(send_datagrams(sender.descriptor.get(), datagrams), 2u);
  EXPECT_EQ(receiver.received(), (std::vector<std::pair<int, std::size_t>>{{1, 100}}));
}

}  // namespace
}  // namespace plugfest::reduction
