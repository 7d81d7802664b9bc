// A plain UDP socket observes when acknowledgements are sent.
#include <array>
#include <optional>

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

constexpr std::uint32_t kPeerNumber = 0x112233;
constexpr int kRounds = 200;

class Acknowledgement : public testing::Test {
 protected:
  Acknowledgement() { connect(*side_.queue_pair, peer_, kPeerNumber, attributes_); }

  void send(Headers headers, std::size_t payload_bytes = 0) {
    headers.destination = side_.queue_pair->number();
    forger_.send(side_.address, headers, payload_bytes);
  }

  /// Sends the next packet of the peer, which asks for an acknowledgement.
  void send_next(Operation operation, std::size_t payload_bytes) {
    Headers headers;
    headers.operation = operation;
    headers.psn = psn_;
    headers.ack_request = true;
    psn_ = psn_ + 1;
    send(headers, payload_bytes);
  }
  void send_empty_message() { send_next(Operation::kSendOnly, 0); }

  /// Acknowledges, so that the NIC does not repeat its message.
  void acknowledge(Psn psn) {
    Headers headers;
    headers.operation = Operation::kAcknowledge;
    headers.psn = psn;
    headers.syndrome = kSyndromeAck;
    send(headers);
  }

  /// The NIC's next packet of this round. Repeated packets of earlier rounds are skipped. nullopt if no packet comes.
  std::optional<Headers> next_packet() {
    for (;;) {
      const ssize_t length = recv(socket_.get(), arrived_.data(), arrived_.size(), 0);
      if (length < 0) return std::nullopt;
      const std::optional<Packet> packet = decode({arrived_.data(), static_cast<std::size_t>(length)});
      if (!packet) return std::nullopt;
      const bool acknowledgement = packet->headers.operation == Operation::kAcknowledge;
      if (packet->headers.psn == (acknowledgement ? psn_.previous() : answer_)) return packet->headers;
    }
  }

  void poll_until_received() {
    const ibv_wc completion = side_.next_completion();
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    ASSERT_EQ(completion.opcode, IBV_WC_RECV);
  }

  /// Sends the peer's message, posts the reply, and returns the operation of the first packet that the peer receives.
  Operation first_of_a_round() {
    EXPECT_EQ(side_.post_receive(0, 0, 64), 0);
    send_empty_message();
    poll_until_received();
    return first_after_a_post();
  }

  /// Posts a message, and returns the operation of the first packet that the peer receives: that message or the
  /// acknowledgement of its own last packet.
  Operation first_after_a_post() {
    EXPECT_EQ(side_.post_send(IBV_WR_SEND, 0, 0, 0, [](ibv_send_wr& request) { request.send_flags = 0; }), 0);
    const std::optional<Headers> first = next_packet(), second = next_packet();
    if (!first || !second) throw std::runtime_error("the NIC did not answer");
    EXPECT_NE(first->operation, second->operation);
    const bool in_order = first->operation == Operation::kAcknowledge;
    const Headers& acknowledgement = in_order ? *first : *second;
    EXPECT_EQ(acknowledgement.operation, Operation::kAcknowledge);
    EXPECT_EQ(acknowledgement.psn, psn_.previous());
    acknowledge(answer_);
    answer_ = answer_ + 1;
    return first->operation;
  }

  const Attributes attributes_ = {.timeout = 0};  // the peer does not acknowledge everything
  const std::string peer_ = loopback_address(3);
  Side side_{loopback_address(1)};
  const Descriptor socket_ = roce_socket(peer_);  ///< receives the peer's packets
  const Forger forger_{peer_};
  Psn psn_{attributes_.psn};     ///< PSN of the peer's next message
  Psn answer_{attributes_.psn};  ///< PSN of the NIC's next message
  std::array<std::byte, kMaxPacketBytes> arrived_;
};

// A late reply may make the NIC send the acknowledgement alone, but not in each round.
TEST_F(Acknowledgement, IsSentWithAReplyThatIsPostedAtOnce) {
  for (int round = 0; round < kRounds; ++round)
    if (first_of_a_round() == Operation::kSendOnly) return;
  FAIL() << "each acknowledgement was sent alone";
}

TEST_F(Acknowledgement, IsSentFirstIfTheProgramWaitsForEvents) {
  side_.completions.request_notify(false);
  for (int round = 0; round < kRounds / 10; ++round) ASSERT_EQ(first_of_a_round(), Operation::kAcknowledge);
}

TEST_F(Acknowledgement, IsSentAloneIfTheProgramPostsNothing) {
  ASSERT_EQ(side_.post_receive(0, 0, 64), 0);
  send_empty_message();
  poll_until_received();
  const std::optional<Headers> packet = next_packet();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->operation, Operation::kAcknowledge);
}

// No reply can follow yet, and the peer may wait with a full congestion window.
TEST_F(Acknowledgement, IsSentFirstInTheMiddleOfAMessage) {
  constexpr std::uint32_t kPathMtu = 1024;
  for (int round = 0; round < kRounds / 10; ++round) {
    ASSERT_EQ(side_.post_receive(0, 0, 2 * kPathMtu), 0);
    const std::uint64_t received = side_.nic.counters().received_packets;
    send_next(Operation::kSendFirst, kPathMtu);
    ibv_wc completion = {};
    while (side_.nic.counters().received_packets == received) ASSERT_EQ(side_.completions.poll(1, &completion), 0);
    ASSERT_EQ(first_after_a_post(), Operation::kAcknowledge);
    send_next(Operation::kSendLast, kPathMtu);
    poll_until_received();
  }
}

// The peer would take the response for lost, and repeat the READ.
TEST_F(Acknowledgement, FollowsAnEarlierReadResponseIfAReceiveIsMissing) {
  {
    const std::lock_guard one_round(side_.nic.context().lock);  // the NIC receives both requests together
    Headers read;
    read.operation = Operation::kReadRequest;
    read.psn = psn_;
    read.address = side_.at(0);
    read.key = side_.region->key();
    read.length = 64;
    send(read);
    psn_ = psn_ + 1;
    send_empty_message();
  }
  for (const Operation expected : {Operation::kReadResponseOnly, Operation::kAcknowledge}) {
    const ssize_t length = recv(socket_.get(), arrived_.data(), arrived_.size(), 0);
    ASSERT_GT(length, 0);
    const std::optional<Packet> packet = decode({arrived_.data(), static_cast<std::size_t>(length)});
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet->headers.operation, expected);
  }
  EXPECT_EQ(side_.nic.counters().sent_rnr_naks, 1u);
}

class EndedQueuePair : public testing::TestWithParam<ibv_qp_state> {};

// The acknowledgement may be sent alone before, but not in each of several rounds.
TEST_P(EndedQueuePair, HasAcknowledgedWhatItsProgramReceived) {
  for (int round = 0; round < kRounds / 20; ++round) {
    TwoNics nics({.timeout = 14, .retry_count = 1});
    ASSERT_EQ(nics.b.post_receive(1, 0, 64), 0);
    ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 1, 0, 64), 0);
    ASSERT_EQ(nics.at_b(1).front().status, IBV_WC_SUCCESS);
    ASSERT_EQ(nics.b.move_to(GetParam()), 0);
    ASSERT_EQ(nics.at_a(1).front().status, IBV_WC_SUCCESS);
  }
}

INSTANTIATE_TEST_SUITE_P(States, EndedQueuePair, testing::Values(IBV_QPS_ERR, IBV_QPS_RESET));

// The peer's program says by other means that the message has arrived; its acknowledgement is late.
TEST(LateAcknowledgement, CompletesAMessageWhoseMemoryIsGone) {
  Side sender(loopback_address(1), 4096);
  // Ten times longer than the requester waits before it repeats a packet.
  Side receiver(loopback_address(2), 4096, parse_faults("delay=20ms"));
  sender.connect(receiver, {});
  receiver.connect(sender, {});
  ASSERT_EQ(receiver.post_receive(1, 0, 64), 0);
  ASSERT_EQ(sender.post_send(IBV_WR_SEND, 1, 0, 64), 0);
  ASSERT_EQ(wait_for(receiver, sender, 1).front().status, IBV_WC_SUCCESS);
  sender.region.reset();
  EXPECT_EQ(wait_for(sender, receiver, 1).front().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace plugfest::roce
