// Failed requests complete with the status that verbs specifies; later requests are flushed in order.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "fabric/roce/qp/connection.h"
#include "fabric/roce/tests/two_nics.h"
#include "fabric/system/testing.h"

namespace plugfest::roce {
namespace {

// Posts a failing request and another one: the first must complete with `status`, the second must be flushed.
template <typename Changes>
void expect_failure(TwoNics& nics, ibv_wr_opcode opcode, std::uint32_t length, ibv_wc_status status, Changes changes) {
  ASSERT_EQ(nics.a.post_send(opcode, 1, 0, length, changes), 0);
  ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_WRITE, 2, 0, 4,
                             [](ibv_send_wr& request) { request.send_flags = 0; }),  // completes all the same
            0);
  const auto completions = nics.at_a(2);
  EXPECT_EQ(completions[0].wr_id, 1u);
  EXPECT_EQ(completions[0].status, status) << ibv_wc_status(completions[0].status);
  EXPECT_EQ(completions[1].wr_id, 2u);
  EXPECT_EQ(completions[1].status, IBV_WC_WR_FLUSH_ERR);
  wait_for_error(nics.a);
}

class Errors : public testing::Test {
 protected:
  TwoNics nics_;
};

TEST_F(Errors, WriteWithAnUnknownKeyFailsWithAnAccessError) {
  expect_failure(nics_, IBV_WR_RDMA_WRITE, 8, IBV_WC_REM_ACCESS_ERR, to(nics_.b.at(0), nics_.b.region->key() ^ 1));
  wait_for_error(nics_.b);
  EXPECT_EQ(nics_.b.events(), std::vector<ibv_event_type>{IBV_EVENT_QP_ACCESS_ERR});
  EXPECT_EQ(nics_.b.nic.counters().sent_access_naks, 1u);
  EXPECT_EQ(nics_.a.nic.counters().received_access_naks, 1u);
}

TEST(ErrorsOfQueuePairs, WriteOutsideOfTheRegionTouchesNothing) {
  const auto expect_refused = [](TwoNics& nics, std::uint64_t address) {
    fill(nics.a.buffer, 1);
    expect_failure(nics, IBV_WR_RDMA_WRITE, 8192, IBV_WC_REM_ACCESS_ERR, to(address, nics.b.region->key()));
    EXPECT_EQ(nics.b.buffer, std::vector<std::uint8_t>(nics.b.buffer.size()));
  };
  TwoNics before, beyond, wrapping;
  expect_refused(before, before.b.at(0) - 1);
  expect_refused(beyond, beyond.b.at(beyond.b.buffer.size() - 8191));
  expect_refused(wrapping, ~std::uint64_t{0} - 3);
}

TEST_F(Errors, WriteIntoARegionWithoutRemoteWriteFailsWithAnAccessError) {
  MemoryRegion region(nics_.b.domain, nics_.b.buffer.data(), 4096, nics_.b.at(0),
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  expect_failure(nics_, IBV_WR_RDMA_WRITE, 8, IBV_WC_REM_ACCESS_ERR, to(nics_.b.at(0), region.key()));
}

TEST_F(Errors, WriteIntoARegionOfAnotherDomainFailsWithAnAccessError) {
  ProtectionDomain other(nics_.b.nic.memory());
  MemoryRegion region(other, nics_.b.buffer.data(), 4096, nics_.b.at(0), kAllAccess);
  expect_failure(nics_, IBV_WR_RDMA_WRITE, 8, IBV_WC_REM_ACCESS_ERR, to(nics_.b.at(0), region.key()));
}

TEST(ErrorsOfQueuePairs, WriteWithoutPermissionFailsWithAnAccessError) {
  TwoNics nics({.access = IBV_ACCESS_REMOTE_READ});
  expect_failure(nics, IBV_WR_RDMA_WRITE, 8, IBV_WC_REM_ACCESS_ERR, to(nics.b));
}

TEST_F(Errors, WriteAfterDeregistrationFailsWithAnAccessError) {
  const std::uint32_t key = nics_.b.region->key();
  nics_.b.region.reset();
  EXPECT_EQ(nics_.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 8, to(nics_.b.at(0), key)).status, IBV_WC_REM_ACCESS_ERR);
}

// A page that the program unmaps although it has registered it.
class UnmappedPage {
 public:
  explicit UnmappedPage(Side& side) : region_(side.domain, page_, kBytes, address(), kAllAccess) {
    memory_.unmap_after(0);
  }

  static constexpr std::size_t kBytes = 4096;
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(page_); }
  std::uint32_t key() const { return region_.key(); }

 private:
  LargeMapping memory_;
  char* const page_ = memory_.begin() + LargeMapping::kBytes / 2;
  MemoryRegion region_;
};

TEST_F(Errors, WriteToUnmappedRemoteMemoryFailsWithAnOperationError) {
  const UnmappedPage page(nics_.b);
  expect_failure(nics_, IBV_WR_RDMA_WRITE, 8, IBV_WC_REM_OP_ERR, to(page.address(), page.key()));
  wait_for_error(nics_.b);
  EXPECT_EQ(nics_.b.nic.counters().sent_operation_naks, 1u);
}

TEST_F(Errors, ReadOfUnmappedRemoteMemoryFailsWithAnOperationError) {
  const UnmappedPage page(nics_.b);
  expect_failure(nics_, IBV_WR_RDMA_READ, 8, IBV_WC_REM_OP_ERR, to(page.address(), page.key()));
  wait_for_error(nics_.b);
}

TEST_F(Errors, AtomicOnUnmappedRemoteMemoryFailsWithAnOperationError) {
  const UnmappedPage page(nics_.b);
  expect_failure(nics_, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, IBV_WC_REM_OP_ERR, [&](ibv_send_wr& request) {
    request.wr.atomic = {page.address(), 1, 0, page.key()};
  });
  wait_for_error(nics_.b);
}

TEST_F(Errors, SendIntoAnUnmappedReceiveFailsOnBothSides) {
  const UnmappedPage page(nics_.b);
  ibv_sge segment = {page.address(), UnmappedPage::kBytes, page.key()};
  ibv_recv_wr receive = {.wr_id = 5, .next = nullptr, .sg_list = &segment, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(nics_.b.queue_pair->post_receive(&receive, &bad), 0);
  EXPECT_EQ(nics_.run_at_a(IBV_WR_SEND, 1, 0, 100).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(nics_.at_b(1).front().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Errors, RequestWithUnmappedLocalMemoryFailsWithAProtectionError) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    TwoNics nics;
    const UnmappedPage page(nics.a);
    ibv_sge segment = {page.address(), 2000, page.key()};
    const auto from_page = [&](ibv_send_wr& request) {
      request.sg_list = &segment;
      request.wr.rdma = {nics.b.at(0), nics.b.region->key()};
    };
    EXPECT_EQ(nics.run_at_a(opcode, 1, 0, 2000, from_page).status, IBV_WC_LOC_PROT_ERR) << opcode;
    wait_for_error(nics.a);
  }
}

// The first packets of the message can be sent, and the packets of a READ are received in place.
TEST_F(Errors, LongRequestWithPartlyUnmappedLocalMemoryFailsWithAProtectionError) {
  constexpr std::uint32_t kLength = 1 << 20;
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    TwoNics nics;
    LargeMapping memory;
    const auto begin = reinterpret_cast<std::uint64_t>(memory.begin());
    const MemoryRegion region(nics.a.domain, memory.begin(), kLength, begin, kAllAccess);
    memory.unmap_after(kLength / 2);
    ibv_sge segment = {begin, kLength, region.key()};
    const auto from_memory = [&](ibv_send_wr& request) {
      request.sg_list = &segment;
      request.wr.rdma = {nics.b.at(0), nics.b.region->key()};
    };
    EXPECT_EQ(nics.run_at_a(opcode, 1, 0, kLength, from_memory).status, IBV_WC_LOC_PROT_ERR) << opcode;
    wait_for_error(nics.a);
  }
}

TEST(ErrorsOfQueuePairs, UnreliableSendFromUnmappedMemoryFailsWithAProtectionError) {
  TwoNics nics({.type = IBV_QPT_UC});
  const UnmappedPage page(nics.a);
  ibv_sge segment = {page.address(), 100, page.key()};
  const auto from_page = [&](ibv_send_wr& request) { request.sg_list = &segment; };
  EXPECT_EQ(nics.run_at_a(IBV_WR_SEND, 1, 0, 100, from_page).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Errors, EmptyWriteNeedsNoKey) {
  EXPECT_EQ(nics_.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 0, to(0, 0)).status, IBV_WC_SUCCESS);
}

TEST(ErrorsOfQueuePairs, ReadWithoutPermissionFailsWithAnAccessError) {
  TwoNics nics({.access = IBV_ACCESS_REMOTE_WRITE});
  expect_failure(nics, IBV_WR_RDMA_READ, 8, IBV_WC_REM_ACCESS_ERR, to(nics.b));
}

TEST_F(Errors, AtomicOnAnUnalignedWordIsAnInvalidRequest) {
  expect_failure(nics_, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, IBV_WC_REM_INV_REQ_ERR, on_word(nics_.b, 4, 1));
}

TEST_F(Errors, SendLongerThanTheReceiveFailsOnBothSides) {
  ASSERT_EQ(nics_.b.post_receive(7, 0, 100), 0);
  expect_failure(nics_, IBV_WR_SEND, 101, IBV_WC_REM_INV_REQ_ERR, [](ibv_send_wr&) {});
  const ibv_wc received = nics_.at_b(1).front();
  EXPECT_EQ(received.wr_id, 7u);
  EXPECT_EQ(received.status, IBV_WC_LOC_LEN_ERR);
  wait_for_error(nics_.b);
}

TEST_F(Errors, ReceiveOutsideItsRegionFailsOnBothSides) {
  ASSERT_EQ(nics_.b.post_receive(7, nics_.b.buffer.size() - 10, 100), 0);
  expect_failure(nics_, IBV_WR_SEND, 50, IBV_WC_REM_OP_ERR, [](ibv_send_wr&) {});
  EXPECT_EQ(nics_.at_b(1).front().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Errors, SendFromUnregisteredMemoryDoesNotAffectThePeer) {
  expect_failure(nics_, IBV_WR_SEND, 8, IBV_WC_LOC_PROT_ERR, [](ibv_send_wr& request) { request.sg_list->lkey ^= 1; });
  EXPECT_EQ(nics_.b.queue_pair->state(), IBV_QPS_RTS) << "the peer must not be affected";
}

// The NIC ignores IBV_SEND_INLINE for these requests, so their segments are stored.
TEST_F(Errors, InlineReadOrAtomicWithTooManySegmentsIsRefused) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    for (const int segments : {static_cast<int>(Side::usual().max_send_sge) + 1, kMaxSegments + 1, -1}) {
      std::array<ibv_sge, kMaxSegments + 1> list = {};
      list[0] = {nics_.a.at(0), 8, nics_.a.region->key()};
      const int error = nics_.a.post_send(opcode, 1, 0, 8, [&](ibv_send_wr& request) {
        request.sg_list = list.data();
        request.num_sge = segments;
        request.send_flags |= IBV_SEND_INLINE;
      });
      EXPECT_EQ(error, EINVAL) << "opcode " << opcode << ", " << segments << " segments";
    }
  }
}

TEST_F(Errors, LocalFailureCompletesAfterEarlierRequests) {
  fill(nics_.a.buffer, 4);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_RDMA_WRITE, 1, 0, 300000, to(nics_.b)), 0);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_SEND, 2, 0, 8, [](ibv_send_wr& request) { request.sg_list->lkey ^= 1; }), 0);
  const auto completions = nics_.at_a(2);
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(completions[1].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(std::memcmp(nics_.a.buffer.data(), nics_.b.buffer.data(), 300000), 0);
}

TEST_F(Errors, LocalFailureDoesNotFailAnEarlierRequestThatIsRepeated) {
  ASSERT_EQ(nics_.a.post_send(IBV_WR_SEND, 1, 0, 8), 0);
  ASSERT_EQ(nics_.a.post_send(IBV_WR_SEND, 2, 0, 8, [](ibv_send_wr& request) { request.sg_list->lkey ^= 1; }), 0);
  nics_.a.poll_until(&Counters::received_rnr_naks, 1);
  ASSERT_EQ(nics_.b.post_receive(7, 0, 100), 0);
  const auto completions = nics_.at_a(2);
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(completions[1].status, IBV_WC_LOC_PROT_ERR);
}

// The requester cannot repeat the message, and waits for the acknowledgement until no retry is left.
TEST(ErrorsOfQueuePairs, RequestWhoseMemoryIsGoneAfterAnRnrNakExhaustsItsRetries) {
  TwoNics nics({.timeout = 8, .retry_count = 1, .rnr_timer = 26});  // 82 ms
  ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 1, 0, 8), 0);
  nics.a.poll_until(&Counters::received_rnr_naks, 1);
  nics.a.region.reset();
  EXPECT_EQ(nics.at_a(1).front().status, IBV_WC_RETRY_EXC_ERR);
}

// The service thread would wake for these timers forever.
TEST(ErrorsOfQueuePairs, FailedResponseStopsTheTimersOfTheRequester) {
  TwoNics nics({.rnr_timer = 31});  // longer than the test
  const UnmappedPage page(nics.a);
  ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 1, 0, 8), 0);
  nics.a.poll_until(&Counters::received_rnr_naks, 1);
  EXPECT_EQ(nics.run_at_b(IBV_WR_RDMA_READ, 2, 0, 8, to(page.address(), page.key())).status, IBV_WC_REM_OP_ERR);
  wait_for_error(nics.a);
  const NicContext nic = nics.a.nic.context();
  const std::lock_guard lock(nic.lock);
  EXPECT_EQ(nics.a.queue_pair->deadline(), kNever);
}

TEST(ErrorsOfQueuePairs, PeerWithoutReceivesExhaustsRnrRetries) {
  TwoNics nics({.rnr_retry = 2});
  expect_failure(nics, IBV_WR_SEND, 8, IBV_WC_RNR_RETRY_EXC_ERR, [](ibv_send_wr&) {});
  EXPECT_EQ(nics.a.nic.counters().received_rnr_naks, 3u);
  EXPECT_EQ(nics.b.nic.counters().sent_rnr_naks, 3u);
  EXPECT_EQ(nics.b.queue_pair->state(), IBV_QPS_RTS);
}

TEST(ErrorsOfQueuePairs, SilentPeerExhaustsRetries) {
  TwoNics nics({.timeout = 8, .retry_count = 2});
  nics.b.queue_pair.reset();
  expect_failure(nics, IBV_WR_SEND, 8, IBV_WC_RETRY_EXC_ERR, [](ibv_send_wr&) {});
  EXPECT_GE(nics.a.nic.counters().timeouts, 3u);  // more on a busy machine
  EXPECT_GE(nics.b.nic.counters().unknown_queue_pairs, 3u);
}

TEST_F(Errors, PacketsOfAnotherSenderAreDropped) {
  Side unknown_sender(loopback_address(3));
  unknown_sender.connect(nics_.b, {.timeout = 8, .retry_count = 0});
  ASSERT_EQ(unknown_sender.post_send(IBV_WR_RDMA_WRITE, 1, 0, 8, to(nics_.b)), 0);
  EXPECT_EQ(wait_for(unknown_sender, nics_.b, 1).front().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(nics_.b.nic.counters().unexpected_packets, 1u);
  EXPECT_EQ(nics_.b.queue_pair->state(), IBV_QPS_RTS);
}

TEST(ErrorsOfQueuePairs, MovingToErrFlushesBothQueuesInOrder) {
  TwoNics nics({.rnr_timer = 31});  // longer than the test
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(nics.a.post_receive(10 + i, 0, 8), 0);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 20 + i, 0, 8), 0);
  ASSERT_EQ(nics.a.move_to(IBV_QPS_ERR), 0);
  std::vector<std::uint64_t> sends, receives;
  for (const ibv_wc& completion : nics.at_a(6)) {
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    (completion.wr_id < 20 ? receives : sends).push_back(completion.wr_id);
  }
  EXPECT_EQ(receives, (std::vector<std::uint64_t>{10, 11, 12}));
  EXPECT_EQ(sends, (std::vector<std::uint64_t>{20, 21, 22}));

  ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 30, 0, 8), 0) << "requests are accepted in ERR";
  ASSERT_EQ(nics.a.post_receive(31, 0, 8), 0);
  for (const ibv_wc& completion : nics.at_a(2)) EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
}

// Hardware drivers remove them, and the tests of pyverbs rely on that.
TEST_F(Errors, ResetRemovesTheCompletionsOfTheQueuePair) {
  ASSERT_EQ(nics_.b.post_receive(1, 0, 8), 0);
  for (const ibv_qp_state state : {IBV_QPS_ERR, IBV_QPS_RESET}) ASSERT_EQ(nics_.b.move_to(state), 0);
  ibv_wc completion = {};
  EXPECT_EQ(nics_.b.completions.poll(1, &completion), 0);
}

// A long WRITE that stops in the middle.
class InterruptedWrite : public testing::Test {
 protected:
  static constexpr std::uint32_t kPacketBytes = 1024;
  static constexpr std::uint32_t kBytes = 1 << 20;
  static constexpr std::uint32_t kBatches = 6;
  static constexpr std::uint32_t kPacketsOfABatch = 4;
  static constexpr std::uint32_t kWrittenBytes = (1 + kBatches * kPacketsOfABatch) * kPacketBytes;

  InterruptedWrite()
      : memory_(static_cast<std::uint8_t*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        region_(nics_.b.domain, memory_, kBytes, reinterpret_cast<std::uintptr_t>(memory_), kAllAccess) {
    fill(nics_.a.buffer, 1);
    write_half();
    nics_.b.poll_until(&Counters::received_packets, kWrittenBytes / kPacketBytes);
  }
  ~InterruptedWrite() override { munmap(memory_, kBytes); }

  TwoNics nics_;
  std::uint8_t* const memory_;  ///< target of the WRITE at b

 private:
  void write_half() {
    const NicContext sender = nics_.a.nic.context();
    const std::lock_guard lock(sender.lock);
    const Path path = path_to({address_of(nics_.a.address), address_of(nics_.b.address), 0, 64}, sender.ports,
                              nics_.a.queue_pair->number());
    const iovec payload = {nics_.a.buffer.data(), kPacketBytes};
    Headers headers;
    headers.operation = Operation::kWriteFirst;
    headers.destination = nics_.b.queue_pair->number();
    headers.psn = Psn(Attributes{}.psn);
    headers.address = reinterpret_cast<std::uintptr_t>(memory_);
    headers.key = region_.key();
    headers.length = kBytes;
    ASSERT_TRUE(sender.batch.add(path, headers, {&payload, 1}, kPacketBytes) && sender.batch.flush());
    headers.operation = Operation::kWriteMiddle;
    for (std::uint32_t i = 0; i < kBatches * kPacketsOfABatch; ++i) {
      headers.psn = headers.psn + 1;
      ASSERT_TRUE(sender.batch.add(path, headers, {&payload, 1}, kPacketBytes));
      ASSERT_TRUE(sender.batch.count() < kPacketsOfABatch || sender.batch.flush());
    }
  }

  MemoryRegion region_;
};

// Programs poll the memory of a WRITE.
TEST_F(InterruptedWrite, LeavesTheMemoryThatItHasNotReachedUnchanged) {
  SecondConnection second(nics_, {.timeout = 10});
  second.swap();
  ASSERT_EQ(nics_.b.post_receive(1, 0, 100), 0);
  ASSERT_EQ(nics_.run_at_a(IBV_WR_SEND, 1, 0, 100).status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics_.at_b(1).front().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(std::all_of(memory_ + kWrittenBytes, memory_ + kBytes, [](std::uint8_t byte) { return byte == 0; }));
}

}  // namespace
}  // namespace plugfest::roce
