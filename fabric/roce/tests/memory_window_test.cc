#include "fabric/roce/memory/memory.h"

#include <optional>

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kWindowOffset = 1000;
constexpr std::size_t kWindowBytes = 64;
constexpr unsigned kBindable = kAllAccess | IBV_ACCESS_MW_BIND;

std::function<void(ibv_send_wr&)> invalidating(std::uint32_t key) {
  return [=](ibv_send_wr& request) { request.invalidate_rkey = key; };
}

// A region that allows windows, and one window.
class Windowed {
 public:
  explicit Windowed(Side& side, ibv_mw_type type = IBV_MW_TYPE_2, unsigned region_access = kBindable)
      : side_(side),
        region(std::in_place, side.domain, side.buffer.data(), side.buffer.size(), side.at(0), region_access),
        window(std::in_place, side.domain, type) {
    handle.rkey = window->key();
    handle.type = type;
    region_handle.lkey = region->key();
    bind_info = {&region_handle, side.at(kWindowOffset), kWindowBytes,
                 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  }

  int post_bind(std::uint64_t id, QueuePair& queue_pair) {
    ibv_send_wr request = {};
    request.wr_id = id;
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw.mw = &handle;
    request.bind_mw.rkey = ibv_inc_rkey(handle.rkey);
    request.bind_mw.bind_info = bind_info;
    ibv_send_wr* bad = nullptr;
    const int error = queue_pair.post_send(&request, &bad);
    if (error == 0) handle.rkey = request.bind_mw.rkey;
    return error;
  }
  int post_bind(std::uint64_t id) { return post_bind(id, *side_.queue_pair); }

 private:
  Side& side_;

 public:
  std::optional<MemoryRegion> region;
  std::optional<MemoryWindow> window;
  ibv_mw handle = {};
  ibv_mr region_handle = {};
  ibv_mw_bind_info bind_info = {};
};

// Binds a window at b.
void bind(TwoNics& nics, Windowed& at_b, QueuePair& queue_pair) {
  ASSERT_EQ(at_b.post_bind(1, queue_pair), 0);
  ASSERT_EQ(nics.at_b(1).front().status, IBV_WC_SUCCESS);
}
void bind(TwoNics& nics, Windowed& at_b) { bind(nics, at_b, *nics.b.queue_pair); }

// A window at b that is bound.
class BoundWindows : public testing::Test {
 protected:
  explicit BoundWindows(ibv_mw_type type = IBV_MW_TYPE_2, const Attributes& attributes = {})
      : nics(attributes), at_b(nics.b, type) {
    EXPECT_EQ(at_b.post_bind(1), 0);
    const ibv_wc completion = nics.at_b(1).front();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(completion.wr_id, 1u);
  }

  ibv_wc_status write(std::uint64_t address, std::uint32_t length) {
    return nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, length, to(address, at_b.handle.rkey)).status;
  }

  TwoNics nics;
  Windowed at_b;
};

class TypeOneWindows : public BoundWindows {
 protected:
  TypeOneWindows() : BoundWindows(IBV_MW_TYPE_1) {}
};

class UnreliableWindows : public BoundWindows {
 protected:
  UnreliableWindows() : BoundWindows(IBV_MW_TYPE_2, {.type = IBV_QPT_UC}) {}
};

using InvalidatingSends = BoundWindows;

TEST_F(BoundWindows, AllowWritesAndReadsInside) {
  fill(nics.a.buffer, 1);
  EXPECT_EQ(write(nics.b.at(kWindowOffset), kWindowBytes), IBV_WC_SUCCESS);
  EXPECT_TRUE(
      std::equal(nics.a.buffer.begin(), nics.a.buffer.begin() + kWindowBytes, nics.b.buffer.begin() + kWindowOffset));
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_READ, 2, 5000, 8, to(nics.b.at(kWindowOffset + 8), at_b.handle.rkey)).status,
            IBV_WC_SUCCESS);
  EXPECT_TRUE(std::equal(nics.a.buffer.begin() + 8, nics.a.buffer.begin() + 16, nics.a.buffer.begin() + 5000));
}

TEST_F(BoundWindows, RejectAccessAfterTheirEnd) {
  EXPECT_EQ(write(nics.b.at(kWindowOffset), kWindowBytes + 1), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(nics.b.buffer, std::vector<std::uint8_t>(nics.b.buffer.size()));
}

TEST_F(BoundWindows, RejectAccessBeforeTheirStart) {
  EXPECT_EQ(write(nics.b.at(kWindowOffset) - 1, 1), IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, AllowOnlyTheRightsOfTheirBinding) {
  TwoNics nics;
  Windowed at_b(nics.b);
  at_b.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
  bind(nics, at_b);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_READ, 1, 0, 8, to(nics.b.at(kWindowOffset), at_b.handle.rkey)).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 8, to(nics.b.at(kWindowOffset), at_b.handle.rkey)).status,
            IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, MayAllowMoreThanTheirRegion) {
  TwoNics nics;
  Windowed at_b(nics.b, IBV_MW_TYPE_2, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  bind(nics, at_b);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 8, to(nics.b.at(kWindowOffset), at_b.handle.rkey)).status,
            IBV_WC_SUCCESS);
}

TEST(Windows, MayBeBoundWithLocalWriteAccess) {
  TwoNics nics;
  Windowed at_b(nics.b);
  at_b.bind_info.mw_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  bind(nics, at_b);
}

TEST(Windows, AllowAtomics) {
  TwoNics nics;
  Windowed at_b(nics.b);
  at_b.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_ATOMIC;
  bind(nics, at_b);
  EXPECT_EQ(nics.run_at_a(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8,
                          [&](ibv_send_wr& request) {
                            request.wr.atomic = {nics.b.at(kWindowOffset), 5, 0, at_b.handle.rkey};
                          })
                .status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(nics.b.buffer[kWindowOffset], 5);
}

TEST(Windows, AreZeroBasedOnRequest) {
  TwoNics nics;
  Windowed at_b(nics.b);
  at_b.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
  bind(nics, at_b);
  nics.a.buffer[0] = 77;
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 1, to(3, at_b.handle.rkey)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics.b.buffer[kWindowOffset + 3], 77);
}

TEST_F(BoundWindows, AreNotLocalMemory) {
  EXPECT_EQ(nics.run_at_b(IBV_WR_SEND, 2, kWindowOffset, 8,
                          [&](ibv_send_wr& request) { request.sg_list->lkey = at_b.handle.rkey; })
                .status,
            IBV_WC_LOC_PROT_ERR);
}

TEST_F(BoundWindows, RejectTheirPreviousKey) {
  at_b.handle.rkey = ibv_inc_rkey(at_b.handle.rkey + 254);
  EXPECT_EQ(write(nics.b.at(kWindowOffset), 8), IBV_WC_REM_ACCESS_ERR);
}

class SecondConnection {
 public:
  explicit SecondConnection(TwoNics& nics) : a(nics.a.another_queue_pair()), b(nics.b.another_queue_pair()) {
    connect(*a, nics.b.address, b->number(), {});
    connect(*b, nics.a.address, a->number(), {});
  }

  std::unique_ptr<QueuePair> a;
  std::unique_ptr<QueuePair> b;
};

TEST(Windows, OfTypeTwoAreValidForTheirQueuePairOnly) {
  TwoNics nics;
  SecondConnection second(nics);
  Windowed at_b(nics.b);
  bind(nics, at_b, *second.b);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 8, to(nics.b.at(kWindowOffset), at_b.handle.rkey)).status,
            IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, OfTypeTwoAreInvalidatedByTheQueuePairThatBoundThem) {
  TwoNics nics;
  SecondConnection second(nics);
  Windowed at_b(nics.b);
  bind(nics, at_b, *second.b);
  EXPECT_EQ(nics.run_at_b(IBV_WR_LOCAL_INV, 2, 0, 0, invalidating(at_b.handle.rkey)).status, IBV_WC_LOC_QP_OP_ERR);
}

TEST(Windows, AreUnboundWithTheirQueuePair) {
  TwoNics nics;
  Windowed at_b(nics.b);
  {
    SecondConnection second(nics);
    ASSERT_EQ(at_b.post_bind(1, *second.b), 0);
    ASSERT_EQ(nics.at_b(1).front().status, IBV_WC_SUCCESS);
    EXPECT_EQ(at_b.region->bound_windows(), 1u);
  }
  EXPECT_EQ(at_b.region->bound_windows(), 0u);
  bind(nics, at_b);
}

TEST_F(BoundWindows, AreUnboundWithTheirRegion) {
  EXPECT_EQ(at_b.region->bound_windows(), 1u);
  at_b.region.reset();
  EXPECT_EQ(write(nics.b.at(kWindowOffset), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(BoundWindows, AreInvalidAfterDestruction) {
  at_b.window.reset();
  EXPECT_EQ(at_b.region->bound_windows(), 0u);
  EXPECT_EQ(write(nics.b.at(kWindowOffset), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(TypeOneWindows, AreValidForAllQueuePairsAndMayBeRebound) {
  SecondConnection second(nics);
  at_b.bind_info.addr += 100;
  bind(nics, at_b, *second.b);
  EXPECT_EQ(at_b.region->bound_windows(), 1u);
  EXPECT_EQ(write(nics.b.at(kWindowOffset + 100), 8), IBV_WC_SUCCESS);
  EXPECT_EQ(write(nics.b.at(kWindowOffset), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(TypeOneWindows, AreUnboundByLengthZero) {
  at_b.bind_info = {};
  bind(nics, at_b);
  EXPECT_EQ(at_b.region->bound_windows(), 0u);
  EXPECT_EQ(write(nics.b.at(kWindowOffset), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(TypeOneWindows, CannotBeInvalidated) {
  EXPECT_EQ(nics.run_at_b(IBV_WR_LOCAL_INV, 2, 0, 0, invalidating(at_b.handle.rkey)).status, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(BoundWindows, MayBeReboundAfterLocalInvalidation) {
  const std::uint32_t before = at_b.handle.rkey;
  ASSERT_EQ(nics.b.post_send(IBV_WR_LOCAL_INV, 2, 0, 0, invalidating(before)), 0);
  ASSERT_EQ(at_b.post_bind(3), 0);
  const auto completions = nics.at_b(2);
  EXPECT_EQ(completions[0].opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(completions[1].status, IBV_WC_SUCCESS);
  EXPECT_NE(at_b.handle.rkey, before);
  EXPECT_EQ(write(nics.b.at(kWindowOffset), 8), IBV_WC_SUCCESS);
}

TEST_F(BoundWindows, RejectAccessAfterInvalidation) {
  ASSERT_EQ(nics.run_at_b(IBV_WR_LOCAL_INV, 2, 0, 0, invalidating(at_b.handle.rkey)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(nics.b.at(kWindowOffset), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, LocalInvalidationOfARegionFails) {
  TwoNics nics;
  EXPECT_EQ(nics.run_at_a(IBV_WR_LOCAL_INV, 2, 0, 0, invalidating(nics.a.region->key())).status, IBV_WC_LOC_QP_OP_ERR);
  wait_for_error(nics.a);
}

// Invalid bindings: the next request is flushed, and the region has no bound window.
struct WrongBinding {
  const char* name;
  unsigned region_access;
  std::function<void(ibv_mw_bind_info&)> change;
};

void PrintTo(const WrongBinding& wrong, std::ostream* out) { *out << wrong.name; }

class InvalidBindings : public ::testing::TestWithParam<WrongBinding> {};

TEST_P(InvalidBindings, CauseABindError) {
  TwoNics nics;
  Windowed at_a(nics.a, IBV_MW_TYPE_2, GetParam().region_access);
  GetParam().change(at_a.bind_info);
  ASSERT_EQ(at_a.post_bind(1), 0);
  const ibv_wc completion = nics.at_a(1).front();
  EXPECT_EQ(completion.status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(completion.wr_id, 1u);
  EXPECT_EQ(at_a.region->bound_windows(), 0u);
  wait_for_error(nics.a);
}

void as_is(ibv_mw_bind_info&) {}

INSTANTIATE_TEST_SUITE_P(
    Windows, InvalidBindings,
    ::testing::Values(
        WrongBinding{"ToARegionThatIsNotForWindows", kAllAccess, as_is},
        WrongBinding{"ForWritingToARegionThatIsNotWritten", IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND, as_is},
        WrongBinding{"BeforeTheRegion", kBindable, [](ibv_mw_bind_info& info) { info.addr -= kWindowOffset + 1; }},
        WrongBinding{"BeyondTheRegion", kBindable, [](ibv_mw_bind_info& info) { info.length = 1 << 20; }},
        WrongBinding{"ThatWraps", kBindable, [](ibv_mw_bind_info& info) { info.length = ~std::uint64_t{0}; }},
        WrongBinding{"OfNoLength", kBindable, [](ibv_mw_bind_info& info) { info.length = 0; }},
        WrongBinding{"ForWhatPeersCannotDo", kBindable,
                     [](ibv_mw_bind_info& info) { info.mw_access_flags |= IBV_ACCESS_MW_BIND; }},
        WrongBinding{"ToAnUnknownRegion", kBindable, [](ibv_mw_bind_info& info) { info.mr->lkey ^= 1; }}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(BoundWindows, BoundTwiceCauseABindErrorAndKeepTheFirstBinding) {
  const std::uint32_t key = at_b.handle.rkey;
  ASSERT_EQ(at_b.post_bind(2), 0);
  EXPECT_EQ(nics.at_b(1).front().status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(at_b.window->key(), key);
  EXPECT_EQ(at_b.region->bound_windows(), 1u);
}

TEST(Windows, OfAnotherDomainCauseABindError) {
  TwoNics nics;
  ProtectionDomain other(nics.a.nic.memory());
  Windowed at_a(nics.a);
  at_a.window.emplace(other, IBV_MW_TYPE_2);
  at_a.handle.rkey = at_a.window->key();
  ASSERT_EQ(at_a.post_bind(1), 0);
  EXPECT_EQ(nics.at_a(1).front().status, IBV_WC_MW_BIND_ERR);
}

TEST(Windows, CannotBeBoundWithAnotherKey) {
  TwoNics nics;
  Windowed at_a(nics.a);
  ibv_send_wr request = {};
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw.mw = &at_a.handle;
  request.bind_mw.rkey = at_a.handle.rkey ^ 0x100;
  request.bind_mw.bind_info = at_a.bind_info;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(nics.a.queue_pair->post_send(&request, &bad), EINVAL);
  EXPECT_EQ(bad, &request);
  request.bind_mw.mw = nullptr;
  EXPECT_EQ(nics.a.queue_pair->post_send(&request, &bad), EINVAL);
}

TEST(Windows, HaveTypeOneOrTwo) {
  TwoNics nics;
  try {
    const MemoryWindow window(nics.a.domain, static_cast<ibv_mw_type>(3));
    ADD_FAILURE() << "window type was accepted";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EINVAL);
  }
}

TEST_F(InvalidatingSends, InvalidatesTheWindowAndReportsIt) {
  const std::uint32_t key = at_b.handle.rkey;
  ASSERT_EQ(nics.b.post_receive(7, 5000, 100), 0);
  const ibv_wc sent = nics.run_at_a(IBV_WR_SEND_WITH_INV, 1, 0, 5, invalidating(key));
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  const ibv_wc received = nics.at_b(1).front();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 5u);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(received.invalidated_rkey, key);
  EXPECT_EQ(at_b.region->bound_windows(), 0u);
  EXPECT_EQ(write(nics.b.at(kWindowOffset), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(InvalidatingSends, MayHaveSeveralPackets) {
  fill(nics.a.buffer, 3);
  ASSERT_EQ(nics.b.post_receive(7, 8192, 8192), 0);
  EXPECT_EQ(nics.run_at_a(IBV_WR_SEND_WITH_INV, 1, 0, 5000, invalidating(at_b.handle.rkey)).status, IBV_WC_SUCCESS);
  const ibv_wc received = nics.at_b(1).front();
  EXPECT_EQ(received.byte_len, 5000u);
  EXPECT_EQ(received.invalidated_rkey, at_b.handle.rkey);
  EXPECT_TRUE(std::equal(nics.a.buffer.begin(), nics.a.buffer.begin() + 5000, nics.b.buffer.begin() + 8192));
}

TEST_F(InvalidatingSends, IsExecutedAfterEarlierReads) {
  ASSERT_EQ(nics.b.post_receive(7, 5000, 100), 0);
  const std::uint32_t key = at_b.handle.rkey;
  ibv_sge segment = {nics.a.at(0), 8, nics.a.region->key()};
  ibv_send_wr send = {};
  send.wr_id = 2;
  send.opcode = IBV_WR_SEND_WITH_INV;
  send.send_flags = IBV_SEND_SIGNALED;
  send.invalidate_rkey = key;
  ibv_send_wr read = {};
  read.wr_id = 1;
  read.next = &send;
  read.sg_list = &segment;
  read.num_sge = 1;
  read.opcode = IBV_WR_RDMA_READ;
  read.send_flags = IBV_SEND_SIGNALED;
  read.wr.rdma = {nics.b.at(kWindowOffset), key};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(nics.a.queue_pair->post_send(&read, &bad), 0);
  const auto completions = nics.at_a(2);
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(completions[1].status, IBV_WC_SUCCESS);
}

void expect_refusal(TwoNics& nics, std::uint32_t key) {
  ASSERT_EQ(nics.b.post_receive(7, 5000, 100), 0);
  EXPECT_EQ(nics.run_at_a(IBV_WR_SEND_WITH_INV, 1, 0, 5, invalidating(key)).status, IBV_WC_REM_ACCESS_ERR);
  const ibv_wc received = nics.at_b(1).front();
  EXPECT_EQ(received.status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(received.wr_id, 7u);
  wait_for_error(nics.a);
  wait_for_error(nics.b);
}

TEST(SendWithInvalidate, OfAnUnknownKeyEndsBothQueuePairs) {
  TwoNics nics;
  expect_refusal(nics, 0x12345678);
}

TEST(SendWithInvalidate, OfAnUnboundWindowEndsBothQueuePairs) {
  TwoNics nics;
  const Windowed at_b(nics.b);
  expect_refusal(nics, at_b.handle.rkey);
}

TEST(SendWithInvalidate, OfARegionEndsBothQueuePairsAndKeepsTheRegion) {
  TwoNics nics;
  expect_refusal(nics, nics.b.region->key());
  SecondConnection second(nics);
  ibv_sge segment = {nics.a.at(0), 8, nics.a.region->key()};
  ibv_send_wr write = {};
  write.sg_list = &segment;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.send_flags = IBV_SEND_SIGNALED;
  write.wr.rdma = {nics.b.at(0), nics.b.region->key()};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(second.a->post_send(&write, &bad), 0);
  ibv_wc completion = {};
  while (nics.a.completions.poll(1, &completion) == 0) nics.b.completions.poll(0, nullptr);
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
}

TEST(SendWithInvalidate, IsRejectedOnUnreliableQueuePairs) {
  TwoNics nics({.type = IBV_QPT_UC});
  EXPECT_EQ(nics.a.post_send(IBV_WR_SEND_WITH_INV, 1, 0, 5, invalidating(1)), EINVAL);
}

TEST_F(UnreliableWindows, CanBeBoundAndInvalidated) {
  EXPECT_EQ(nics.run_at_b(IBV_WR_LOCAL_INV, 2, 0, 0, invalidating(at_b.handle.rkey)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics.run_at_b(IBV_WR_LOCAL_INV, 3, 0, 0, invalidating(at_b.handle.rkey)).status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(nics.b.queue_pair->state(), IBV_QPS_SQE);
}

// Local requests send no packet, so retransmission must neither repeat nor lose them.
TEST(Windows, CompleteInOrderDespitePacketLoss) {
  constexpr std::uint64_t kRounds = 300;
  TwoNics nics({.faults = {.loss = 0.05, .duplicate = 0.05, .reorder = 0.05, .seed = 11}});
  Windowed at_a(nics.a);
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  auto take = [&] {
    ibv_wc completion = {};
    while (nics.a.completions.poll(1, &completion) == 1) {
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      ASSERT_EQ(completion.wr_id, completed++);
    }
    nics.b.completions.poll(0, nullptr);
  };
  const auto write = to(nics.b);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_WRITE, posted++, 0, 3000, write), 0);
    ASSERT_EQ(at_a.post_bind(posted++), 0);
    ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_READ, posted++, 0, 2000, write), 0);
    ASSERT_EQ(nics.a.post_send(IBV_WR_LOCAL_INV, posted++, 0, 0, invalidating(at_a.handle.rkey)), 0);
    while (posted - completed > Side::usual().max_send_wr - 4) ASSERT_NO_FATAL_FAILURE(take());
  }
  while (completed < posted) ASSERT_NO_FATAL_FAILURE(take());
  EXPECT_GT(nics.a.nic.counters().retransmitted_packets, 0u);
  EXPECT_EQ(at_a.region->bound_windows(), 0u);
}

}  // namespace
}  // namespace plugfest::roce
