// Messages, WRITEs and READs of reliable queue pairs by size, and the queues of requests. The model test (model/)
// covers atomics, scatter-gather lists and inline data.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "fabric/roce/tests/two_nics.h"
#include "fabric/system/scratch_folder.h"
#include "fabric/system/wait.h"

namespace plugfest::roce {
namespace {

// The second half of a buffer, for what arrives.
constexpr std::size_t kTarget = 512 * 1024;

// Moves to SQD and requests an event when the send queue is drained.
void start_to_drain(Side& side) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  ASSERT_EQ(side.queue_pair->modify(attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
}

TEST(Reliable, SendQueueDrainsAndResumes) {
  TwoNics nics;
  nics.a.buffer[0] = 1;
  const auto write = [&](std::uint64_t id) {
    return nics.a.post_send(IBV_WR_RDMA_WRITE, id, 0, 5000, to(nics.b, kTarget + 8192 * id));
  };
  ASSERT_EQ(write(1), 0);
  start_to_drain(nics.a);
  ASSERT_EQ(write(2), 0);
  EXPECT_EQ(nics.at_a(1).front().wr_id, 1u);  // started requests complete
  ibv_qp_attr attributes = {};
  nics.a.queue_pair->query(attributes);  // waits for the lock under which the event is reported
  EXPECT_EQ(nics.a.events(), std::vector{IBV_EVENT_SQ_DRAINED});
  EXPECT_EQ(attributes.qp_state, IBV_QPS_SQD);
  EXPECT_EQ(attributes.sq_draining, 0);
  EXPECT_EQ(nics.b.buffer[kTarget + 8192], 1);
  EXPECT_EQ(nics.b.buffer[kTarget + 2 * 8192], 0);
  ASSERT_EQ(nics.a.move_to(IBV_QPS_RTS), 0);
  EXPECT_EQ(nics.at_a(1).front().wr_id, 2u);
  EXPECT_EQ(nics.b.buffer[kTarget + 2 * 8192], 1);
}

TEST(Reliable, SendQueueIsNotDrainedBeforeARepeatedRequestIsAcknowledged) {
  TwoNics nics({.rnr_timer = 26});  // 82 ms
  ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 1, 0, 8), 0);
  nics.a.poll_until(&Counters::received_rnr_naks, 1);
  start_to_drain(nics.a);
  EXPECT_TRUE(nics.a.events().empty());
  ibv_qp_attr attributes = {};
  nics.a.queue_pair->query(attributes);
  EXPECT_EQ(attributes.sq_draining, 1);
  ASSERT_EQ(nics.b.post_receive(7, 0, 8), 0);
  EXPECT_EQ(nics.at_a(1).front().status, IBV_WC_SUCCESS);
  nics.a.queue_pair->query(attributes);
  EXPECT_EQ(nics.a.events(), std::vector{IBV_EVENT_SQ_DRAINED});
}

// Changes attributes while the send queue is drained.
void change_drained(Side& side, int mask, const ibv_qp_attr& attributes) {
  ASSERT_EQ(side.move_to(IBV_QPS_SQD), 0);
  ASSERT_EQ(side.queue_pair->modify(attributes, mask), 0);
  ASSERT_EQ(side.move_to(IBV_QPS_RTS), 0);
}

TEST(DrainedSendQueue, TakesALimitOfRnrRetries) {
  TwoNics nics;
  ibv_qp_attr attributes = {};
  attributes.rnr_retry = 2;
  change_drained(nics.a, IBV_QP_RNR_RETRY, attributes);
  EXPECT_EQ(nics.run_at_a(IBV_WR_SEND, 1, 0, 8).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(nics.a.nic.counters().received_rnr_naks, 3u);
}

TEST(DrainedSendQueue, TakesATimeout) {
  TwoNics nics({.timeout = 0});
  ASSERT_EQ(nics.b.move_to(IBV_QPS_RESET), 0);
  ibv_qp_attr attributes = {};
  attributes.timeout = 8;
  attributes.retry_cnt = 1;
  change_drained(nics.a, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, attributes);
  EXPECT_EQ(nics.run_at_a(IBV_WR_SEND, 1, 0, 8).status, IBV_WC_RETRY_EXC_ERR);
}

TEST(DrainedSendQueue, TakesANumberOfReads) {
  TwoNics nics({.reads_in_flight = 0});
  fill(nics.b.buffer, 1);
  EXPECT_EQ(nics.a.post_send(IBV_WR_RDMA_READ, 1, 0, 8, to(nics.b)), EINVAL);
  ibv_qp_attr attributes = {};
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 2;
  change_drained(nics.a, IBV_QP_MAX_QP_RD_ATOMIC, attributes);
  change_drained(nics.b, IBV_QP_MAX_DEST_RD_ATOMIC, attributes);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_READ, 2, 0, 8, to(nics.b)).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived(nics.b, nics.a, 0, 0, 8));
}

TEST(DrainedSendQueue, FailsAReadThatItsNumberOfReadsForbids) {
  TwoNics nics;
  ASSERT_EQ(nics.a.move_to(IBV_QPS_SQD), 0);
  ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_READ, 1, 0, 8, to(nics.b)), 0);
  ASSERT_EQ(nics.a.queue_pair->modify({}, IBV_QP_MAX_QP_RD_ATOMIC), 0);
  ASSERT_EQ(nics.a.move_to(IBV_QPS_RTS), 0);
  EXPECT_EQ(nics.at_a(1).front().status, IBV_WC_LOC_QP_OP_ERR);
}

class Sizes : public testing::TestWithParam<std::uint32_t> {
 protected:
  TwoNics nics_;
};
INSTANTIATE_TEST_SUITE_P(Bytes, Sizes,
                         testing::Values(0u, 1u, 3u, 4u, 1023u, 1024u, 1025u, 2048u, 5000u, 65536u, 300001u));

TEST_P(Sizes, SendArrivesInThePostedReceive) {
  fill(nics_.a.buffer, GetParam());
  ASSERT_EQ(nics_.b.post_receive(7, kTarget, kTarget), 0);
  const ibv_wc sent = nics_.run_at_a(IBV_WR_SEND, 5, 11, GetParam());
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 5u);
  EXPECT_EQ(sent.qp_num, nics_.a.queue_pair->number());
  const ibv_wc received = nics_.at_b(1).front();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 7u);
  EXPECT_EQ(received.byte_len, GetParam());
  EXPECT_EQ(received.qp_num, nics_.b.queue_pair->number());
  EXPECT_EQ(received.wc_flags, 0u);
  EXPECT_TRUE(arrived(nics_.a, nics_.b, 11, kTarget, GetParam()));
}

TEST_P(Sizes, WriteChangesOnlyItsRange) {
  fill(nics_.a.buffer, GetParam());
  const std::vector<std::uint8_t> before(nics_.b.buffer.begin(), nics_.b.buffer.begin() + kTarget + 1);
  const ibv_wc written = nics_.run_at_a(IBV_WR_RDMA_WRITE, 5, 0, GetParam(), to(nics_.b, kTarget + 1));
  EXPECT_EQ(written.status, IBV_WC_SUCCESS);
  EXPECT_EQ(written.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(arrived(nics_.a, nics_.b, 0, kTarget + 1, GetParam()));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), nics_.b.buffer.begin()));
  EXPECT_EQ(nics_.b.buffer[kTarget + 1 + GetParam()], 0);
}

TEST_P(Sizes, WriteWithImmediateCompletesAReceive) {
  fill(nics_.a.buffer, GetParam());
  ASSERT_EQ(nics_.b.post_receive(9, 0, 0), 0);
  const auto with_immediate = [&](ibv_send_wr& request) {
    request.imm_data = htonl(0xabcd1234);
    request.wr.rdma = {nics_.b.at(kTarget), nics_.b.region->key()};
  };
  ASSERT_EQ(nics_.a.post_send(IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, GetParam(), with_immediate), 0);
  const ibv_wc received = nics_.at_b(1).front();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.byte_len, GetParam());
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ntohl(received.imm_data), 0xabcd1234u);
  EXPECT_TRUE(arrived(nics_.a, nics_.b, 0, kTarget, GetParam()));
  EXPECT_EQ(nics_.at_a(1).front().opcode, IBV_WC_RDMA_WRITE);
}

TEST_P(Sizes, ReadFetchesThePeersBytes) {
  fill(nics_.b.buffer, GetParam());
  const ibv_wc read = nics_.run_at_a(IBV_WR_RDMA_READ, 5, kTarget, GetParam(), to(nics_.b, 3));
  EXPECT_EQ(read.status, IBV_WC_SUCCESS);
  EXPECT_EQ(read.opcode, IBV_WC_RDMA_READ);
  EXPECT_TRUE(arrived(nics_.b, nics_.a, 3, kTarget, GetParam()));
}

TEST(Reliable, CompletionsAreInOrderAndOnlyForSignaledRequests) {
  TwoNics nics;
  for (std::uint64_t i = 0; i < 60; ++i) ASSERT_EQ(nics.b.post_receive(100 + i, kTarget + i * 1000, 1000), 0);
  fill(nics.a.buffer, 9);
  for (std::uint64_t i = 0; i < 60; ++i)
    ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, i, i * 1000, static_cast<std::uint32_t>(i * 16),
                               [&](ibv_send_wr& request) {
                                 request.send_flags = i % 10 == 9 ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u;
                               }),
              0);
  const auto received = nics.at_b(60);
  for (std::uint64_t i = 0; i < 60; ++i) {
    EXPECT_EQ(received[i].wr_id, 100 + i);
    EXPECT_EQ(received[i].byte_len, i * 16);
    EXPECT_TRUE(arrived(nics.a, nics.b, i * 1000, kTarget + i * 1000, i * 16));
  }
  const auto sent = nics.at_a(6);
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(sent[i].wr_id, i * 10 + 9);
}

TEST(Reliable, TransfersMoreThanACongestionWindow) {
  TwoNics nics({}, 16 << 20);
  fill(nics.a.buffer, 5);
  for (std::uint64_t i = 0; i < 16; ++i)
    ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_WRITE, i, i << 20, 1 << 20, to(nics.b, i << 20)), 0);
  for (const ibv_wc& completion : nics.at_a(16)) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics.a.buffer, nics.b.buffer);
}

TEST(Reliable, TheMiddleOfLongReadsIsReceivedInPlace) {
  TwoNics nics({}, 4 << 20);
  fill(nics.a.buffer, 17);
  constexpr std::uint32_t kLength = 2 << 20;
  const auto at_b = to(nics.b, kLength);
  ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_WRITE, 1, 0, kLength, at_b), 0);
  ASSERT_EQ(nics.at_a(1).back().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived(nics.a, nics.b, 0, kLength, kLength));
  EXPECT_EQ(nics.b.nic.counters().placed_packets, 0u) << "a WRITE's memory had bytes that were not checked";

  fill(nics.b.buffer, 18);
  ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_READ, 2, 0, kLength, at_b), 0);
  ASSERT_EQ(nics.at_a(1).back().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived(nics.b, nics.a, kLength, 0, kLength));
  EXPECT_GT(nics.a.nic.counters().placed_packets, 0u);
}

// The ICRC is computed before the kernel copies the packet.
TEST(Reliable, ReadsOfACounterThatChangesAreNotDamaged) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a READ of memory that is written meanwhile is a data race on purpose";
#endif
  TwoNics nics;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::atomic_ref counter(*reinterpret_cast<std::uint64_t*>(nics.b.buffer.data()));
    while (!stop) counter.fetch_add(1, std::memory_order_relaxed);
  });
  for (std::uint64_t i = 0; i < 500; ++i)
    EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_READ, i, 0, 8, to(nics.b)).status, IBV_WC_SUCCESS);
  stop = true;
  writer.join();
  EXPECT_EQ(nics.a.nic.counters().icrc_errors, 0u);
}

// A service thread that waits for a blocked socket would find it writable in every round.
TEST(Reliable, SendSocketIsUnblockedAlthoughNoQueuePairWaits) {
  TwoNics nics;
  const NicContext nic = nics.a.nic.context();
  SendSocket* socket = nullptr;
  {
    const std::lock_guard lock(nic.lock);
    socket = &nic.ports.port(address_of(nics.a.address)).send_socket(nics.a.queue_pair->number());
    socket->set_blocked();
  }
  EXPECT_EQ(nics.run_at_b(IBV_WR_RDMA_WRITE, 1, 0, 8, to(nics.a, kTarget)).status, IBV_WC_SUCCESS);
  const auto unblocked = [&] {
    const std::lock_guard lock(nic.lock);
    return !socket->blocked();
  };
  EXPECT_TRUE(wait_until(unblocked, std::chrono::seconds(10)));
}

TEST(Reliable, SmallWritesAreSentIfTheSenderNeverPolls) {
  TwoNics nics;
  fill(nics.a.buffer, 19);
  constexpr std::uint64_t kWrites = 40;  // more than one batch, and not a multiple of a batch
  ASSERT_EQ(nics.b.post_receive(1, 0, 0), 0);
  for (std::uint64_t i = 0; i < kWrites; ++i)
    ASSERT_EQ(nics.a.post_send(i + 1 < kWrites ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM, i, i, 1,
                               to(nics.b, kTarget + i)),
              0);
  ibv_wc completion = {};
  while (nics.b.completions.poll(1, &completion) == 0) std::this_thread::yield();
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived(nics.a, nics.b, 0, kTarget, kWrites));
}

TEST(Reliable, FullSendQueueRejectsTheRestOfTheList) {
  TwoNics nics({.rnr_timer = 12});
  int posted = 0;
  while (nics.a.post_send(IBV_WR_SEND, 1, 0, 4) == 0) ++posted;  // nothing completes: no receive is posted
  EXPECT_EQ(posted, 64);
  EXPECT_EQ(nics.a.post_send(IBV_WR_SEND, 1, 0, 4), ENOMEM);
}

TEST(Reliable, WaitsForAReceiveThatIsPostedLater) {
  TwoNics nics;
  ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 5, 0, 3000), 0);
  while (nics.a.nic.counters().received_rnr_naks < 3) {
    nics.a.completions.poll(0, nullptr);
    nics.b.completions.poll(0, nullptr);
  }
  ASSERT_EQ(nics.b.post_receive(7, kTarget, 4096), 0);
  EXPECT_EQ(nics.at_a(1).front().status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics.at_b(1).front().byte_len, 3000u);
}

std::size_t packets_in(const std::string& pcapng) {
  std::size_t packets = 0;
  for (std::size_t at = 0; at + 8 <= pcapng.size();) {
    std::uint32_t type_and_length[2];
    std::memcpy(type_and_length, pcapng.data() + at, sizeof type_and_length);
    packets += type_and_length[0] == 6 ? 1 : 0;
    at += type_and_length[1];
  }
  return packets;
}

TEST(Reliable, TheEndOfAQueuePairWritesItsCapturedPackets) {
  const ScratchFolder folder;
  const std::string file = folder / "packets.pcapng";
  ::setenv("PLUGFEST_ROCE_PCAP", file.c_str(), 1);
  TwoNics nics;
  ::unsetenv("PLUGFEST_ROCE_PCAP");
  ASSERT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 100, to(nics.b, kTarget)).status, IBV_WC_SUCCESS);
  for (Side* const side : {&nics.a, &nics.b}) side->queue_pair.reset();
  EXPECT_GE(packets_in(read_file(file)), 4u) << "two packets, each at both NICs";
}

}  // namespace
}  // namespace plugfest::roce
