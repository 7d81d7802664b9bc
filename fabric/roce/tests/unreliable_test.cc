// Unreliable connections (UC): dropped messages, and local errors. The model test (model/) covers lost packets.
#include <cerrno>

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kTarget = 512 * 1024;

class Unreliable : public testing::Test {
 protected:
  TwoNics nics_{{.type = IBV_QPT_UC}};
};

class UnreliableSizes : public Unreliable, public testing::WithParamInterface<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, UnreliableSizes, testing::Values(0u, 1u, 1023u, 1024u, 1025u, 5000u, 65536u));

TEST_P(UnreliableSizes, SendWithImmediateArrivesInThePostedReceive) {
  fill(nics_.a.buffer, GetParam());
  ASSERT_EQ(nics_.b.post_receive(7, kTarget, kTarget), 0);
  const ibv_wc sent =
      nics_.run_at_a(IBV_WR_SEND_WITH_IMM, 5, 11, GetParam(), [](auto& request) { request.imm_data = 42; });
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 5u);
  const ibv_wc received = nics_.at_b(1).front();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 7u);
  EXPECT_EQ(received.byte_len, GetParam());
  EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(received.imm_data, 42u);
  EXPECT_TRUE(arrived(nics_.a, nics_.b, 11, kTarget, GetParam()));
}

TEST_F(Unreliable, MessageWithoutAReceiveIsDropped) {
  EXPECT_EQ(nics_.run_at_a(IBV_WR_SEND, 1, 0, 3000).status, IBV_WC_SUCCESS);
  nics_.b.poll_until(&Counters::dropped_messages, 1);
  ASSERT_EQ(nics_.b.post_receive(7, kTarget, kTarget), 0);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_SEND, 2, 0, 3001), 0);
  EXPECT_EQ(nics_.at_b(1).front().byte_len, 3001u);
  EXPECT_EQ(nics_.b.nic.counters().dropped_messages, 1u);
}

TEST_F(Unreliable, TooSmallReceiveIsUsedForTheNextMessage) {
  ASSERT_EQ(nics_.b.post_receive(7, kTarget, 2000), 0);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_SEND, 1, 0, 3000), 0);
  nics_.b.poll_until(&Counters::dropped_messages, 1);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_SEND, 2, 0, 2000), 0);
  const ibv_wc received = nics_.at_b(1).front();
  EXPECT_EQ(received.wr_id, 7u);
  EXPECT_EQ(received.byte_len, 2000u);
}

TEST_F(Unreliable, WriteWithoutPermissionIsDropped) {
  fill(nics_.a.buffer, 1);
  const auto unknown_key = to(nics_.b.at(kTarget), nics_.b.region->key() + 1);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_RDMA_WRITE, 1, 0, 3000, unknown_key), 0);
  nics_.b.poll_until(&Counters::dropped_messages, 1);
  EXPECT_EQ(nics_.b.buffer[kTarget], 0);
  EXPECT_EQ(nics_.a.queue_pair->state(), IBV_QPS_RTS);
  EXPECT_EQ(nics_.b.queue_pair->state(), IBV_QPS_RTS);
  ASSERT_EQ(nics_.b.post_receive(7, 0, 0), 0);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 3000, to(nics_.b, kTarget)), 0);
  nics_.at_b(1);
  EXPECT_TRUE(arrived(nics_.a, nics_.b, 0, kTarget, 3000));
}

TEST_F(Unreliable, UnregisteredMemoryStopsSendingUntilTheProgramResumes) {
  const ibv_wc failed = nics_.run_at_a(IBV_WR_SEND, 1, 0, 8, [](auto& request) { ++request.sg_list->lkey; });
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(nics_.a.queue_pair->state(), IBV_QPS_SQE);
  EXPECT_EQ(nics_.run_at_a(IBV_WR_SEND, 2, 0, 8).status, IBV_WC_WR_FLUSH_ERR);

  // The queue pair still receives.
  ASSERT_EQ(nics_.a.post_receive(3, kTarget, 100), 0);
  ASSERT_EQ(nics_.b.post_send(IBV_WR_SEND, 4, 0, 8), 0);
  EXPECT_EQ(nics_.at_a(1).front().status, IBV_WC_SUCCESS);

  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.cur_qp_state = IBV_QPS_SQE;
  ASSERT_EQ(nics_.a.queue_pair->modify(attributes, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
  ASSERT_EQ(nics_.b.post_receive(5, kTarget, 100), 0);
  EXPECT_EQ(nics_.run_at_a(IBV_WR_SEND, 6, 0, 8).status, IBV_WC_SUCCESS);
}

TEST_F(Unreliable, ReadsAndAtomicsAreRejected) {
  EXPECT_EQ(nics_.a.post_send(IBV_WR_RDMA_READ, 1, 0, 8), EINVAL);
  EXPECT_EQ(nics_.a.post_send(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8), EINVAL);
}

TEST_F(Unreliable, SendQueueDrainsAndResumes) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  ASSERT_EQ(nics_.a.queue_pair->modify(attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  EXPECT_EQ(nics_.a.events(), std::vector{IBV_EVENT_SQ_DRAINED});
  ASSERT_EQ(nics_.b.post_receive(1, kTarget, 100), 0);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_SEND, 2, 0, 8), 0);
  EXPECT_EQ(nics_.a.nic.counters().sent_packets, 0u);
  ASSERT_EQ(nics_.a.move_to(IBV_QPS_RTS), 0);
  EXPECT_EQ(nics_.at_b(1).front().status, IBV_WC_SUCCESS);
}

// A connection whose peer reads nothing: the kernel has no room for more data.
class FullConnection {
 public:
  FullConnection() {
    sockaddr_in name = {};
    socklen_t length = sizeof(name);
    auto* const address = reinterpret_cast<sockaddr*>(&name);
    if (listen(listener_.get(), 1) != 0 || getsockname(listener_.get(), address, &length) != 0 ||
        connect(sender_.get(), address, length) != 0)
      throw std::runtime_error("cannot make a connection");
    const std::vector<char> bytes(1 << 16);
    while (::send(sender_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
  }
  int descriptor() const { return sender_.get(); }

 private:
  Descriptor listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Descriptor sender_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

// A plan that drops the second packet only, of the first four.
FaultPlan drop_of_second_packet() {
  for (FaultPlan plan = parse_faults("loss=50%,direction=out");; ++plan.seed) {
    FaultDecider decider("", Direction::kOut);
    decider.set_plans({&plan, 1});
    if (!decider.next().loss && decider.next().loss && !decider.next().loss && !decider.next().loss) return plan;
  }
}

TEST(UnreliableWithoutRoom, RepeatsAPacketAlthoughAFaultDropsTheNextOne) {
  TwoNics nics({.type = IBV_QPT_UC, .faults = drop_of_second_packet()});
  for (const std::uint64_t id : {1u, 2u}) ASSERT_EQ(nics.b.post_receive(id, 0, 64), 0);
  UdpPort& port = nics.a.nic.context().ports.port(Address(address_of(nics.a.address)));
  const int used = port.send_socket(nics.a.queue_pair->number()).descriptor();
  const Descriptor kept(dup(used));
  const FullConnection full;
  dup2(full.descriptor(), used);
  ibv_send_wr second = {};
  const auto add_second = [&](ibv_send_wr& first) {
    second = first;
    second.wr_id = 2;
    first.next = &second;
  };
  ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 1, 0, 64, add_second), 0);
  dup2(kept.get(), used);
  EXPECT_EQ(nics.at_b(2).back().wr_id, 2u);
  EXPECT_EQ(nics.at_a(2).back().wr_id, 2u);
}

}  // namespace
}  // namespace plugfest::roce
