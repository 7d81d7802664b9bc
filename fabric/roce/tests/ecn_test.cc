// Congestion marks are counted and reported to the sender, and shrink its congestion window.
#include "fabric/roce/wire/wire.h"

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

constexpr std::uint32_t kBytes = 500'000;
constexpr std::uint64_t kPackets = (kBytes + 1023) / 1024;

// Packets of a are marked when they are sent, as by a congested switch.
Attributes marked_from_a() { return {.traffic_class = kCongestionExperienced, .ecn_at_b = true}; }

// Lets a handle all notifications of b.
void wait_for_notifications(TwoNics& nics) {
  nics.a.poll_until(&Counters::handled_notifications, nics.b.nic.counters().sent_notifications);
}

TEST(Marks, AreReportedToTheSenderOfWrites) {
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

TEST(Marks, AreReportedToTheResponderOfReads) {
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

TEST(Marks, AreReportedForUnreliableMessages) {
  Attributes attributes = marked_from_a();
  attributes.type = IBV_QPT_UC;
  TwoNics nics(attributes);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 4, to(nics.b)).status, IBV_WC_SUCCESS);
  nics.b.poll_until(&Counters::sent_notifications, 1);
  wait_for_notifications(nics);
  EXPECT_EQ(nics.b.nic.counters().marked_packets, 1u);
}

constexpr std::uint8_t kTrafficClass = 0x68;

// The traffic class of the first packet of a WRITE.
int traffic_class_sent(ibv_qp_type type, bool ecn) {
  const std::string peer = loopback_address(9);
  const Descriptor socket = roce_socket(peer);
  const int on = 1;
  EXPECT_EQ(setsockopt(socket.get(), IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)), 0);
  Side side(loopback_address(1), 4096, {}, type, {}, ecn);
  connect(*side.queue_pair, peer, 5, {.type = type, .traffic_class = kTrafficClass});
  EXPECT_EQ(side.post_send(IBV_WR_RDMA_WRITE, 1, 0, 8), 0);
  char bytes[kMaxPacketBytes];
  alignas(cmsghdr) char control[64];
  iovec part = {bytes, sizeof(bytes)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  EXPECT_GT(recvmsg(socket.get(), &message, 0), 0);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  return header != nullptr && header->cmsg_type == IP_TOS ? *CMSG_DATA(header) : -1;
}

TEST(Marks, OnlyReliablePacketsAreEcnCapableAndOnlyIfEnabled) {
  EXPECT_EQ(traffic_class_sent(IBV_QPT_RC, true), kTrafficClass | kEcnCapable);
  EXPECT_EQ(traffic_class_sent(IBV_QPT_XRC_SEND, true), kTrafficClass | kEcnCapable);
  EXPECT_EQ(traffic_class_sent(IBV_QPT_RC, false), kTrafficClass);
  EXPECT_EQ(traffic_class_sent(IBV_QPT_UC, true), kTrafficClass);
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
  connect(*side.queue_pair, peer, 5, {.psn = kFirstPsn});
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
  side.poll_until(&Counters::received_packets, notified ? 2 : 1);
  bursts.second = side.nic.counters().sent_packets - bursts.first;
  return bursts;
}

TEST(Marks, NotificationsReducePacketsInFlight) {
  const Bursts alone = bursts_of_a_sender(false);
  EXPECT_GT(alone.second, alone.first * 3 / 2);
  const Bursts notified = bursts_of_a_sender(true);
  EXPECT_LT(notified.second, notified.first * 3 / 4);
}

}  // namespace
}  // namespace plugfest::roce
