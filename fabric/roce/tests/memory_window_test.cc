// Memory windows of both types: access, binding, invalidation.
#include "fabric/roce/memory/memory.h"

#include <optional>

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kWindowOffset = 1000;
constexpr std::size_t kWindowBytes = 64;
constexpr unsigned kBindable = kAllAccess | IBV_ACCESS_MW_BIND;

auto invalidating(std::uint32_t key) {
  return [=](ibv_send_wr& request) { request.invalidate_rkey = key; };
}

// A region that allows windows, one window, and the arguments of the next binding.
class Windowed {
 public:
  explicit Windowed(Side& side, ibv_mw_type type = IBV_MW_TYPE_2, unsigned region_access = kBindable)
      : region(std::in_place, side.domain, side.buffer.data(), side.buffer.size(), side.at(0), region_access),
        window(std::in_place, side.domain, type),
        side_(side) {
    handle.rkey = window->key();
    handle.type = type;
    region_handle.lkey = region->key();
    bind_info = {&region_handle, side.at(kWindowOffset), kWindowBytes,
                 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  }

  // Returns the result of ibv_post_send().
  int post_bind(std::uint64_t id) {
    const std::uint32_t key = ibv_inc_rkey(handle.rkey);
    const int error = post_bind(id, &handle, key);
    if (error == 0) handle.rkey = key;
    return error;
  }
  int post_bind(std::uint64_t id, ibv_mw* window_handle, std::uint32_t key) {
    return side_.post_send(IBV_WR_BIND_MW, id, 0, 0, [&](ibv_send_wr& request) {
      request.bind_mw = {window_handle, key, bind_info};
    });
  }

  std::optional<MemoryRegion> region;
  std::optional<MemoryWindow> window;
  ibv_mw handle = {};
  ibv_mr region_handle = {};
  ibv_mw_bind_info bind_info = {};

 private:
  Side& side_;
};

// A window at b that is not bound.
class Windows : public testing::Test {
 protected:
  explicit Windows(ibv_mw_type type = IBV_MW_TYPE_2, const Attributes& attributes = {})
      : nics_(attributes), at_b_(nics_.b, type) {}

  void bind(unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) {
    at_b_.bind_info.mw_access_flags = access;
    ASSERT_EQ(at_b_.post_bind(1), 0);
    const ibv_wc completion = nics_.at_b(1).front();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(completion.wr_id, 1u);
    EXPECT_EQ(at_b_.region->bound_windows(), at_b_.bind_info.length == 0 ? 0u : 1u);
  }

  // Access by a to b's memory through the window.
  ibv_wc_status write(std::size_t offset = kWindowOffset, std::uint32_t length = 8) {
    return nics_.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, length, to(nics_.b.at(offset), at_b_.handle.rkey)).status;
  }
  ibv_wc_status read(std::size_t target, std::size_t offset = kWindowOffset) {
    return nics_.run_at_a(IBV_WR_RDMA_READ, 2, target, 8, to(nics_.b.at(offset), at_b_.handle.rkey)).status;
  }

  ibv_wc_status invalidate() {
    return nics_.run_at_b(IBV_WR_LOCAL_INV, 2, 0, 0, invalidating(at_b_.handle.rkey)).status;
  }

  TwoNics nics_;
  Windowed at_b_;
};

class BoundWindows : public Windows {
 protected:
  explicit BoundWindows(ibv_mw_type type = IBV_MW_TYPE_2, const Attributes& attributes = {})
      : Windows(type, attributes) {
    bind();
  }
};

class TypeOneWindows : public BoundWindows {
 protected:
  TypeOneWindows() : BoundWindows(IBV_MW_TYPE_1) {}
};

class UnreliableWindows : public BoundWindows {
 protected:
  UnreliableWindows() : BoundWindows(IBV_MW_TYPE_2, {.type = IBV_QPT_UC}) {}
};

TEST_F(BoundWindows, AllowWritesAndReadsInside) {
  fill(nics_.a.buffer, 1);
  EXPECT_EQ(write(kWindowOffset, kWindowBytes), IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived(nics_.a, nics_.b, 0, kWindowOffset, kWindowBytes));
  EXPECT_EQ(read(5000, kWindowOffset + 8), IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived(nics_.a, nics_.a, 8, 5000, 8));
}

TEST_F(BoundWindows, RejectAccessAfterTheirEnd) {
  EXPECT_EQ(write(kWindowOffset, kWindowBytes + 1), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(nics_.b.buffer, std::vector<std::uint8_t>(nics_.b.buffer.size()));
}

TEST_F(BoundWindows, RejectAccessBeforeTheirStart) { EXPECT_EQ(write(kWindowOffset - 1, 1), IBV_WC_REM_ACCESS_ERR); }

TEST_F(Windows, AllowOnlyTheRightsOfTheirBinding) {
  bind(IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(read(0), IBV_WC_SUCCESS);
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, MayAllowMoreThanTheirRegion) {
  at_b_.region.emplace(nics_.b.domain, nics_.b.buffer.data(), nics_.b.buffer.size(), nics_.b.at(0),
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  at_b_.region_handle.lkey = at_b_.region->key();
  bind();
  EXPECT_EQ(write(), IBV_WC_SUCCESS);
}

TEST_F(Windows, MayBeBoundWithLocalWriteAccess) { bind(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE); }

TEST_F(Windows, AllowAtomics) {
  bind(IBV_ACCESS_REMOTE_ATOMIC);
  const auto add_five = [&](ibv_send_wr& request) {
    request.wr.atomic = {nics_.b.at(kWindowOffset), 5, 0, at_b_.handle.rkey};
  };
  EXPECT_EQ(nics_.run_at_a(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, add_five).status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics_.b.buffer[kWindowOffset], 5);
}

TEST_F(Windows, AreZeroBasedOnRequest) {
  bind(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
  nics_.a.buffer[0] = 77;
  EXPECT_EQ(nics_.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 1, to(3, at_b_.handle.rkey)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics_.b.buffer[kWindowOffset + 3], 77);
}

TEST_F(BoundWindows, AreNotLocalMemory) {
  const auto through_window = [&](ibv_send_wr& request) { request.sg_list->lkey = at_b_.handle.rkey; };
  EXPECT_EQ(nics_.run_at_b(IBV_WR_SEND, 2, kWindowOffset, 8, through_window).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(BoundWindows, RejectTheirPreviousKey) {
  at_b_.handle.rkey = ibv_inc_rkey(at_b_.handle.rkey + 254);
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, AWindowOfTypeTwoIsValidForItsQueuePairOnly) {
  SecondConnection second(nics_);
  second.swap();
  bind();
  second.swap();
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, OnlyTheBindingQueuePairInvalidatesAWindowOfTypeTwo) {
  SecondConnection second(nics_);
  second.swap();
  bind();
  second.swap();
  EXPECT_EQ(invalidate(), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(Windows, AreUnboundWithTheirQueuePair) {
  {
    SecondConnection second(nics_);
    second.swap();
    bind();
    second.swap();
  }
  EXPECT_EQ(at_b_.region->bound_windows(), 0u);
  bind();
}

TEST_F(BoundWindows, AreUnboundWithTheirRegion) {
  at_b_.region.reset();
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(BoundWindows, AreInvalidAfterDestruction) {
  at_b_.window.reset();
  EXPECT_EQ(at_b_.region->bound_windows(), 0u);
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(TypeOneWindows, AreValidForAllQueuePairsAndMayBeRebound) {
  SecondConnection second(nics_);
  at_b_.bind_info.addr += 100;
  second.swap();
  bind();
  second.swap();
  EXPECT_EQ(write(kWindowOffset + 100), IBV_WC_SUCCESS);
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(TypeOneWindows, AreUnboundByLengthZero) {
  at_b_.bind_info = {};
  bind(0);
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(TypeOneWindows, CannotBeInvalidated) { EXPECT_EQ(invalidate(), IBV_WC_LOC_QP_OP_ERR); }

TEST_F(BoundWindows, MayBeReboundAfterLocalInvalidation) {
  const std::uint32_t before = at_b_.handle.rkey;
  ASSERT_EQ(nics_.b.post_send(IBV_WR_LOCAL_INV, 2, 0, 0, invalidating(before)), 0);
  ASSERT_EQ(at_b_.post_bind(3), 0);
  const auto completions = nics_.at_b(2);
  EXPECT_EQ(completions[0].opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(completions[1].status, IBV_WC_SUCCESS);
  EXPECT_NE(at_b_.handle.rkey, before);
  EXPECT_EQ(write(), IBV_WC_SUCCESS);
}

TEST_F(BoundWindows, RejectAccessAfterInvalidation) {
  ASSERT_EQ(invalidate(), IBV_WC_SUCCESS);
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(UnreliableWindows, CanBeInvalidatedOnce) {
  EXPECT_EQ(invalidate(), IBV_WC_SUCCESS);
  EXPECT_EQ(invalidate(), IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(nics_.b.queue_pair->state(), IBV_QPS_SQE);
}

TEST_F(Windows, LocalInvalidationOfARegionFails) {
  at_b_.handle.rkey = nics_.b.region->key();
  EXPECT_EQ(invalidate(), IBV_WC_LOC_QP_OP_ERR);
  wait_for_error(nics_.b);
}

// Invalid bindings: the next request is flushed, and the region has no bound window.
struct WrongBinding {
  const char* name;
  unsigned region_access;
  std::function<void(ibv_mw_bind_info&)> change;
};

void PrintTo(const WrongBinding& wrong, std::ostream* out) { *out << wrong.name; }

class InvalidBindings : public testing::TestWithParam<WrongBinding> {};

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

using Info = ibv_mw_bind_info;

void as_is(Info&) {}

INSTANTIATE_TEST_SUITE_P(
    Windows, InvalidBindings,
    testing::Values(
        WrongBinding{"ToARegionThatIsNotForWindows", kAllAccess, as_is},
        WrongBinding{"ForWritingToARegionThatIsNotWritten", IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND, as_is},
        WrongBinding{"BeforeTheRegion", kBindable, [](Info& info) { info.addr -= kWindowOffset + 1; }},
        WrongBinding{"BeyondTheRegion", kBindable, [](Info& info) { info.length = 1 << 20; }},
        WrongBinding{"ThatWraps", kBindable, [](Info& info) { info.length = ~std::uint64_t{0}; }},
        WrongBinding{"OfNoLength", kBindable, [](Info& info) { info.length = 0; }},
        WrongBinding{"ForWhatPeersCannotDo", kBindable, [](Info& info) { info.mw_access_flags |= IBV_ACCESS_MW_BIND; }},
        WrongBinding{"ToAnUnknownRegion", kBindable, [](Info& info) { info.mr->lkey ^= 1; }}),
    [](const auto& instance) { return instance.param.name; });

TEST_F(BoundWindows, RejectASecondBindingAndKeepTheFirst) {
  const std::uint32_t key = at_b_.handle.rkey;
  ASSERT_EQ(at_b_.post_bind(2), 0);
  EXPECT_EQ(nics_.at_b(1).front().status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(at_b_.window->key(), key);
  EXPECT_EQ(at_b_.region->bound_windows(), 1u);
}

TEST_F(Windows, AWindowOfAnotherDomainCausesABindError) {
  ProtectionDomain other(nics_.b.nic.memory());
  at_b_.window.emplace(other, IBV_MW_TYPE_2);
  at_b_.handle.rkey = at_b_.window->key();
  ASSERT_EQ(at_b_.post_bind(1), 0);
  EXPECT_EQ(nics_.at_b(1).front().status, IBV_WC_MW_BIND_ERR);
  at_b_.window.reset();
}

TEST_F(Windows, CannotBeBoundWithAnotherKeyOrWithoutAWindow) {
  const std::uint32_t key = at_b_.handle.rkey ^ 0x100;
  EXPECT_EQ(at_b_.post_bind(1, &at_b_.handle, key), EINVAL);
  EXPECT_EQ(at_b_.post_bind(1, nullptr, key), EINVAL);
}

TEST_F(BoundWindows, AreInvalidatedByASendThatReportsTheirKey) {
  fill(nics_.a.buffer, 3);
  ASSERT_EQ(nics_.b.post_receive(7, 8192, 8192), 0);
  const ibv_wc sent = nics_.run_at_a(IBV_WR_SEND_WITH_INV, 1, 0, 5000, invalidating(at_b_.handle.rkey));
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  const ibv_wc received = nics_.at_b(1).front();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 5000u);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(received.invalidated_rkey, at_b_.handle.rkey);
  EXPECT_TRUE(arrived(nics_.a, nics_.b, 0, 8192, 5000));
  EXPECT_EQ(at_b_.region->bound_windows(), 0u);
  EXPECT_EQ(write(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(BoundWindows, AreInvalidatedByASendAfterEarlierReads) {
  ASSERT_EQ(nics_.b.post_receive(7, 5000, 100), 0);
  const std::uint32_t key = at_b_.handle.rkey;
  ibv_send_wr send = {};
  send.wr_id = 2;
  send.opcode = IBV_WR_SEND_WITH_INV;
  send.send_flags = IBV_SEND_SIGNALED;
  send.invalidate_rkey = key;
  ASSERT_EQ(nics_.a.post_send(IBV_WR_RDMA_READ, 1, 0, 8,
                              [&](ibv_send_wr& read) {
                                read.wr.rdma = {nics_.b.at(kWindowOffset), key};
                                read.next = &send;
                              }),
            0);
  for (const ibv_wc& completion : nics_.at_a(2)) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
}

class SendWithInvalidate : public Windows {
 protected:
  void expect_refusal(std::uint32_t key) {
    ASSERT_EQ(nics_.b.post_receive(7, 5000, 100), 0);
    EXPECT_EQ(nics_.run_at_a(IBV_WR_SEND_WITH_INV, 1, 0, 5, invalidating(key)).status, IBV_WC_REM_ACCESS_ERR);
    const ibv_wc received = nics_.at_b(1).front();
    EXPECT_EQ(received.status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(received.wr_id, 7u);
    wait_for_error(nics_.a);
    wait_for_error(nics_.b);
  }
};

TEST_F(SendWithInvalidate, EndsBothQueuePairsIfTheKeyIsUnknown) { expect_refusal(0x12345678); }

TEST_F(SendWithInvalidate, EndsBothQueuePairsIfTheWindowIsUnbound) { expect_refusal(at_b_.handle.rkey); }

TEST_F(SendWithInvalidate, EndsBothQueuePairsAndKeepsARegion) {
  expect_refusal(nics_.b.region->key());
  SecondConnection second(nics_);
  second.swap();
  EXPECT_EQ(nics_.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, 8, to(nics_.b)).status, IBV_WC_SUCCESS);
}

TEST(UnreliableQueuePairs, RejectSendWithInvalidate) {
  TwoNics nics({.type = IBV_QPT_UC});
  EXPECT_EQ(nics.a.post_send(IBV_WR_SEND_WITH_INV, 1, 0, 5, invalidating(1)), EINVAL);
}

// Local requests send no packet, so retransmission must neither repeat nor lose them.
TEST(WindowRequestsOnALossyLink, CompleteInOrder) {
  constexpr std::uint64_t kRounds = 300;
  TwoNics nics({.faults = {.loss = 0.05, .duplicate = 0.05, .reorder = 0.05, .seed = 11}});
  Windowed at_a(nics.a);
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  const auto take = [&] {
    ibv_wc completion = {};
    while (nics.a.completions.poll(1, &completion) == 1) {
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      ASSERT_EQ(completion.wr_id, completed++);
    }
    nics.b.completions.poll(0, nullptr);
  };
  const auto at_b = to(nics.b);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_WRITE, posted++, 0, 3000, at_b), 0);
    ASSERT_EQ(at_a.post_bind(posted++), 0);
    ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_READ, posted++, 0, 2000, at_b), 0);
    ASSERT_EQ(nics.a.post_send(IBV_WR_LOCAL_INV, posted++, 0, 0, invalidating(at_a.handle.rkey)), 0);
    while (posted - completed > Side::usual().max_send_wr - 4) ASSERT_NO_FATAL_FAILURE(take());
  }
  while (completed < posted) ASSERT_NO_FATAL_FAILURE(take());
  EXPECT_GT(nics.a.nic.counters().retransmitted_packets, 0u);
  EXPECT_EQ(at_a.region->bound_windows(), 0u);
}

}  // namespace
}  // namespace plugfest::roce
