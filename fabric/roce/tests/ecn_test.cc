// Congestion marks are counted and reported to the sender, and shrink its congestion window.
#include "fabric/roce/wire/wire.h"

#include "fabric/roce/qp/loss_recovery.h"
#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

constexpr std::uint32_t kBytes = 500'000;
constexpr std::uint64_t kPackets = (kBytes + 1023) / 1024;

// Packets of a are marked when they are sent, as by a congested switch.
Attributes marked_from_a() {
  Attributes attributes;
  attributes.traffic_class = kCongestionExperienced;
  attributes.ecn_at_b = true;
  return attributes;
}

// Lets a handle all notifications of b.
void wait_for_notifications(TwoNics& nics) {
  while (nics.a.nic.counters().handled_notifications < nics.b.nic.counters().sent_notifications)
    nics.a.completions.poll(0, nullptr);
}

TEST(Marks, OfWritesAreReportedToTheSender) {
  TwoNics nics(marked_from_a());
  fill(nics.a.buffer, 1);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, kBytes, to(nics.b)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(nics.a.buffer.data(), nics.b.buffer.data(), kBytes), 0);
  wait_for_notifications(nics);
  const Counters at_b = nics.b.nic.counters();
  EXPECT_GE(at_b.marked_packets, kPackets);
  EXPECT_GE(at_b.sent_notifications, 1u);
  EXPECT_LT(at_b.sent_notifications, at_b.marked_packets);  // fewer than one per mark
  EXPECT_EQ(nics.a.nic.counters().handled_notifications, at_b.sent_notifications);
}

TEST(Marks, OfReadResponsesAreReportedToTheResponder) {
  TwoNics nics(marked_from_a());
  fill(nics.a.buffer, 1);
  EXPECT_EQ(nics.run_at_b(IBV_WR_RDMA_READ, 1, 0, kBytes, to(nics.a)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(nics.a.buffer.data(), nics.b.buffer.data(), kBytes), 0);
  wait_for_notifications(nics);
  EXPECT_GE(nics.b.nic.counters().marked_packets, kPackets);
  EXPECT_GE(nics.a.nic.counters().handled_notifications, 1u);
}

TEST(Marks, AreIgnoredByDefault) {
  Attributes attributes = marked_from_a();
  attributes.ecn_at_b = false;
  TwoNics nics(attributes);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, kBytes, to(nics.b)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics.b.nic.counters().marked_packets, 0u);
  EXPECT_EQ(nics.b.nic.counters().sent_notifications, 0u);
}

TEST(Marks, OfUnreliableMessagesAreReported) {
  Attributes attributes = marked_from_a();
  attributes.type = IBV_QPT_UC;
  TwoNics nics(attributes);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 4, to(nics.b)).status, IBV_WC_SUCCESS);
  while (nics.b.nic.counters().sent_notifications == 0) nics.b.completions.poll(0, nullptr);
  wait_for_notifications(nics);
  EXPECT_EQ(nics.b.nic.counters().marked_packets, 1u);
}

// The traffic class of the first packet that a queue pair of `nic` sends to a plain socket.
int traffic_class_sent(Side& side, const Attributes& attributes) {
  const std::string address = loopback_address(9);
  const int looking = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(kRoceUdpPort);
  name.sin_addr = address_of(address);
  const int on = 1;
  if (bind(looking, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0 ||
      setsockopt(looking, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)) != 0)
    throw std::runtime_error("no socket to look with");
  connect(*side.queue_pair, address, 5, attributes);
  EXPECT_EQ(side.post_send(IBV_WR_RDMA_WRITE, 1, 0, 8), 0);
  char bytes[kMaxPacketBytes];
  alignas(cmsghdr) char control[64];
  iovec part = {bytes, sizeof(bytes)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  EXPECT_GT(recvmsg(looking, &message, 0), 0);
  close(looking);
  const cmsghdr* const told = CMSG_FIRSTHDR(&message);
  return told != nullptr && told->cmsg_type == IP_TOS ? *CMSG_DATA(told) : -1;
}

TEST(Marks, ReliablePacketsAreEcnCapable) {
  Attributes attributes;
  attributes.traffic_class = 0x68;
  Side side(loopback_address(1), 4096, {}, IBV_QPT_RC, {}, true);
  EXPECT_EQ(traffic_class_sent(side, attributes), 0x68 | kEcnCapable);
}

TEST(Marks, PacketsAreNotEcnCapableByDefault) {
  Attributes attributes;
  attributes.traffic_class = 0x68;
  Side side(loopback_address(1), 4096);
  EXPECT_EQ(traffic_class_sent(side, attributes), 0x68);
}

TEST(Marks, UnreliablePacketsAreNotEcnCapable) {
  Attributes attributes;
  attributes.type = IBV_QPT_UC;
  attributes.traffic_class = 0x68;
  Side side(loopback_address(1), 4096, {}, IBV_QPT_UC, {}, true);
  EXPECT_EQ(traffic_class_sent(side, attributes), 0x68);
}

// Packets that a sender has in flight before the first acknowledgement, and after all were acknowledged.
struct Bursts {
  std::uint64_t first;
  std::uint64_t second;
};

Bursts bursts_of_a_sender(bool notified) {
  constexpr std::uint32_t kFirstPsn = 100;
  const std::string peer = loopback_address(9);
  Side side(loopback_address(1));
  Attributes attributes;
  attributes.psn = kFirstPsn;
  connect(*side.queue_pair, peer, 5, attributes);
  EXPECT_EQ(side.post_send(IBV_WR_RDMA_WRITE, 1, 0, 1'000'000), 0);
  Bursts bursts = {side.nic.counters().sent_packets, 0};
  const Forger forger(peer);
  Headers headers;
  headers.destination = side.queue_pair->number();
  if (notified) {
    headers.transport = Transport::kNotification;
    headers.operation = Operation::kCongestionNotification;
    forger.send(side.address, headers, 0);
  }
  headers.transport = Transport::kReliable;
  headers.operation = Operation::kAcknowledge;
  headers.psn = Psn(kFirstPsn + static_cast<std::uint32_t>(bursts.first) - 1);
  headers.syndrome = kSyndromeAck;
  forger.send(side.address, headers, 0);
  while (side.nic.counters().received_packets < (notified ? 2u : 1u)) side.completions.poll(0, nullptr);
  bursts.second = side.nic.counters().sent_packets - bursts.first;
  return bursts;
}

TEST(Marks, NotificationsReducePacketsInFlight) {
  const Bursts alone = bursts_of_a_sender(false);
  EXPECT_GT(alone.second, alone.first * 3 / 2);
  const Bursts notified = bursts_of_a_sender(true);
  EXPECT_LT(notified.second, notified.first * 3 / 4);
}

constexpr std::uint64_t kMax = 1 << 20;

// A round trip without loss.
void pass_round(CongestionWindow& window) { window.on_acknowledgement(window.bytes()); }

TEST(CongestionWindow, HalvesOnTheFirstMark) {
  CongestionWindow window;
  window.start(4096, kMax);
  while (window.bytes() < kMax) pass_round(window);
  window.on_congestion();
  EXPECT_EQ(window.bytes(), kMax / 2);
}

TEST(CongestionWindow, ShrinksLessIfMarksAreRare) {
  CongestionWindow window;
  window.start(4096, kMax);
  while (window.bytes() < kMax) pass_round(window);
  window.on_congestion();
  for (int i = 0; i < 100; ++i) pass_round(window);
  const std::uint64_t before = window.bytes();
  window.on_congestion();
  EXPECT_GT(window.bytes(), before * 95 / 100);
  EXPECT_LT(window.bytes(), before);
}

TEST(CongestionWindow, ShrinksToTheMinimumAndGrowsAgain) {
  CongestionWindow window;
  window.start(4096, kMax);
  for (int i = 0; i < 100; ++i) {
    window.on_congestion();
    pass_round(window);
  }
  EXPECT_LT(window.bytes(), 64u << 10);
  EXPECT_GE(window.bytes(), CongestionWindow::kMinBytes);
  for (int i = 0; i < 1000; ++i) pass_round(window);
  EXPECT_EQ(window.bytes(), kMax);
}

}  // namespace
}  // namespace plugfest::roce
