// Datagram queue pairs (UD): headers, address handles, Q_Keys, and several peers.
#include <algorithm>
#include <cerrno>
#include <system_error>

#include "fabric/roce/qp/connection.h"
#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kTarget = 64 * 1024;
constexpr std::size_t kGrh = 40;
constexpr std::uint32_t kQKey = 0x11111111;

Side datagram_side(int which) { return Side(loopback_address(which), 1 << 20, {}, IBV_QPT_UD); }

// Two datagram queue pairs.
class Datagrams : public testing::Test {
 protected:
  Datagrams() {
    make_ready_for_datagrams(*a_.queue_pair, kQKey);
    make_ready_for_datagrams(*b_.queue_pair, kQKey);
  }

  static std::unique_ptr<AddressHandle> handle_of(Side& sender, const Side& receiver) {
    return std::make_unique<AddressHandle>(sender.nic.context(), sender.domain, path_attributes(receiver.address));
  }

  static int send(Side& sender, const AddressHandle& handle, const Side& receiver, std::uint64_t id,
                  std::uint32_t length, std::uint32_t q_key = kQKey, ibv_wr_opcode opcode = IBV_WR_SEND) {
    return sender.post_send(opcode, id, 0, length, [&](ibv_send_wr& request) {
      request.imm_data = 42;
      request.wr.ud.ah = const_cast<AddressHandle*>(&handle);
      request.wr.ud.remote_qpn = receiver.queue_pair->number();
      request.wr.ud.remote_qkey = q_key;
    });
  }

  Side a_ = datagram_side(1);
  Side b_ = datagram_side(2);
};

class DatagramSizes : public Datagrams, public testing::WithParamInterface<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, DatagramSizes, testing::Values(0u, 1u, 1023u, 4095u, 4096u));

TEST_P(DatagramSizes, PayloadArrivesAfterTheIpHeader) {
  fill(a_.buffer, GetParam());
  const auto handle = handle_of(a_, b_);
  ASSERT_EQ(b_.post_receive(7, kTarget, kGrh + 4096), 0);
  ASSERT_EQ(send(a_, *handle, b_, 5, GetParam(), kQKey, IBV_WR_SEND_WITH_IMM), 0);
  EXPECT_EQ(wait_for(a_, b_, 1).front().status, IBV_WC_SUCCESS);
  const ibv_wc received = wait_for(b_, a_, 1).front();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 7u);
  EXPECT_EQ(received.byte_len, kGrh + GetParam());
  EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_GRH | IBV_WC_WITH_IMM});
  EXPECT_EQ(received.imm_data, 42u);
  EXPECT_EQ(received.sl, 2u);  // the packet type of IPv4, as mlx5 reports it
  EXPECT_EQ(received.src_qp, a_.queue_pair->number());
  EXPECT_TRUE(std::equal(a_.buffer.begin(), a_.buffer.begin() + GetParam(), b_.buffer.begin() + kTarget + kGrh));
  const std::uint8_t* const header = b_.buffer.data() + kTarget + 20;
  EXPECT_EQ(header[0], 0x45);
  const in_addr source = address_of(a_.address);
  const in_addr destination = address_of(b_.address);
  EXPECT_EQ(std::memcmp(header + 12, &source, 4), 0);
  EXPECT_EQ(std::memcmp(header + 16, &destination, 4), 0);
  std::uint32_t sum = 0;  // the sum of a header with its checksum is 0xffff
  for (int i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(header[i] << 8 | header[i + 1]);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
}

TEST_F(Datagrams, ReportTrafficClassAndHopLimit) {
  ibv_ah_attr attributes = path_attributes(b_.address);
  attributes.grh.traffic_class = 0x28;
  attributes.grh.hop_limit = 9;
  const AddressHandle handle(a_.nic.context(), a_.domain, attributes);
  ASSERT_EQ(b_.post_receive(7, kTarget, 1000), 0);
  ASSERT_EQ(send(a_, handle, b_, 1, 8), 0);
  EXPECT_EQ(wait_for(b_, a_, 1).front().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b_.buffer[kTarget + 21], 0x28);
  EXPECT_EQ(b_.buffer[kTarget + 28], 9);
}

TEST_F(Datagrams, ReachAnAddressThatWasAddedLater) {
  const std::string later = loopback_address(4);
  b_.nic.set_addresses({address_of(b_.address), address_of(later)});
  ibv_ah_attr attributes = path_attributes(later);
  const AddressHandle handle(a_.nic.context(), a_.domain, attributes);
  ASSERT_EQ(b_.post_receive(7, kTarget, 1000), 0);
  ASSERT_EQ(send(a_, handle, b_, 1, 8), 0);
  EXPECT_EQ(wait_for(b_, a_, 1).front().status, IBV_WC_SUCCESS);
  const in_addr destination = address_of(later);
  EXPECT_EQ(std::memcmp(b_.buffer.data() + kTarget + 36, &destination, 4), 0);
  attributes.grh.sgid_index = 1;
  EXPECT_THROW(AddressHandle(a_.nic.context(), a_.domain, attributes), std::system_error);  // a has one address
  EXPECT_NO_THROW(AddressHandle(b_.nic.context(), b_.domain, attributes));
  b_.nic.set_addresses({address_of(b_.address)});
  EXPECT_THROW(AddressHandle(b_.nic.context(), b_.domain, attributes), std::system_error);
}

TEST_F(Datagrams, AreDroppedIfTheirQKeyDiffers) {
  const auto handle = handle_of(a_, b_);
  ASSERT_EQ(b_.post_receive(7, kTarget, 1000), 0);
  ASSERT_EQ(send(a_, *handle, b_, 1, 8, kQKey + 1), 0);
  b_.poll_until(&Counters::q_key_violations, 1);
  ASSERT_EQ(send(a_, *handle, b_, 2, 9, 1u << 31), 0);  // bit 31: use the sender's Q_Key
  EXPECT_EQ(wait_for(b_, a_, 1).front().byte_len, kGrh + 9);
}

TEST_F(Datagrams, AreRejectedIfLongerThanThePathMtu) {
  const auto handle = handle_of(a_, b_);
  EXPECT_EQ(send(a_, *handle, b_, 1, 4097), EINVAL);
  ASSERT_EQ(b_.post_receive(7, kTarget, kGrh + 4096), 0);
  ASSERT_EQ(send(a_, *handle, b_, 2, 4096), 0);
  EXPECT_EQ(wait_for(b_, a_, 1).front().byte_len, kGrh + 4096);
}

TEST_F(Datagrams, AreRejectedWithoutAHandleOfTheDomain) {
  const auto of_b = handle_of(b_, a_);
  EXPECT_EQ(send(a_, *of_b, b_, 1, 8), EINVAL);
  EXPECT_EQ(a_.post_send(IBV_WR_SEND, 1, 0, 8, [](ibv_send_wr& request) { request.wr.ud.ah = nullptr; }), EINVAL);
  const auto handle = handle_of(a_, b_);
  EXPECT_EQ(send(a_, *handle, b_, 1, 8, kQKey, IBV_WR_RDMA_WRITE), EINVAL);
}

TEST_F(Datagrams, AreSentUntilOneOfTheListHasNoSocket) {
  a_.nic.set_addresses({address_of(a_.address), address_of("203.0.113.1")});  // the second is not this host's
  ibv_ah_attr attributes = path_attributes(b_.address);
  attributes.grh.sgid_index = 1;
  AddressHandle without_socket(a_.nic.context(), a_.domain, attributes);
  const auto handle = handle_of(a_, b_);
  ASSERT_EQ(b_.post_receive(7, kTarget, 1000), 0);
  ibv_send_wr second = {};
  second.opcode = IBV_WR_SEND;
  second.wr.ud = {&without_socket, b_.queue_pair->number(), kQKey};
  ibv_send_wr first = second;
  first.wr.ud.ah = handle.get();
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(a_.queue_pair->post_send(&first, &bad), EADDRNOTAVAIL);
  EXPECT_EQ(bad, &second);
  EXPECT_EQ(wait_for(b_, a_, 1).front().byte_len, kGrh);
}

TEST_F(Datagrams, KeepATooSmallReceiveForAShorterDatagram) {
  const auto handle = handle_of(a_, b_);
  ASSERT_EQ(b_.post_receive(7, kTarget, kGrh + 10), 0);
  ASSERT_EQ(send(a_, *handle, b_, 1, 11), 0);
  b_.poll_until(&Counters::dropped_messages, 1);
  ASSERT_EQ(send(a_, *handle, b_, 2, 10), 0);
  const ibv_wc received = wait_for(b_, a_, 1).front();
  EXPECT_EQ(received.wr_id, 7u);
  EXPECT_EQ(received.byte_len, kGrh + 10);
}

TEST_F(Datagrams, ReachOneQueuePairFromSeveralSenders) {
  constexpr std::uint32_t kEach = 10;
  Side c = datagram_side(3);
  make_ready_for_datagrams(*c.queue_pair, kQKey);
  const auto from_a = handle_of(a_, b_);
  const auto from_c = handle_of(c, b_);
  for (std::uint32_t i = 0; i < 2 * kEach; ++i) ASSERT_EQ(b_.post_receive(i, kTarget, 1000), 0);
  for (std::uint32_t i = 0; i < kEach; ++i) {
    ASSERT_EQ(send(a_, *from_a, b_, i, i), 0);
    ASSERT_EQ(send(c, *from_c, b_, i, i), 0);
  }
  std::uint32_t next_of_a = 0;
  std::uint32_t next_of_c = 0;
  for (const ibv_wc& received : wait_for(b_, a_, 2 * kEach)) {
    ASSERT_TRUE(received.src_qp == a_.queue_pair->number() || received.src_qp == c.queue_pair->number());
    EXPECT_EQ(received.byte_len, kGrh + (received.src_qp == a_.queue_pair->number() ? next_of_a : next_of_c)++);
  }
  EXPECT_EQ(next_of_a, kEach);
  EXPECT_EQ(next_of_c, kEach);
}

TEST_F(Datagrams, ReachSeveralQueuePairsFromOneSender) {
  Side c = datagram_side(3);
  make_ready_for_datagrams(*c.queue_pair, kQKey);
  const auto to_b = handle_of(a_, b_);
  const auto to_c = handle_of(a_, c);
  const auto to_itself = handle_of(a_, a_);
  Side* const receivers[] = {&b_, &c, &a_};
  const AddressHandle* const handles[] = {to_b.get(), to_c.get(), to_itself.get()};
  for (std::uint32_t round = 0; round < 4; ++round)
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(receivers[i]->post_receive(100 + round, kTarget, 1000), 0);
      ASSERT_EQ(send(a_, *handles[i], *receivers[i], round, round + 1), 0);
    }
  for (Side* const receiver : {&b_, &c}) {
    const std::vector<ibv_wc> received = wait_for(*receiver, a_, 4);
    for (std::uint32_t round = 0; round < 4; ++round) EXPECT_EQ(received[round].byte_len, kGrh + round + 1);
  }
  const std::vector<ibv_wc> own = wait_for(a_, b_, 12 + 4);
  EXPECT_EQ(std::count_if(own.begin(), own.end(), [](const ibv_wc& wc) { return wc.opcode == IBV_WC_RECV; }), 4);
}

}  // namespace
}  // namespace plugfest::roce
