// Rings of threads on the fake NIC.
#include "plugins/sharp/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plugins/mesh/testing/fake_verbs.h"

namespace sharp {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
namespace net = mesh::net;

using Bytes = std::vector<std::uint8_t>;
constexpr std::chrono::seconds kLimit{60};

Bytes bytes_of(int rank, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256 + std::size_t{13} * static_cast<std::size_t>(rank));
  return bytes;
}

class RingTest : public ::testing::Test {
 protected:
  RingTest() {
    mesh::fake::nic() = {};
    EXPECT_EQ(net::init(&context_, 0, nullptr, nullptr, nullptr), Result::kSuccess);
  }
  ~RingTest() override {
    EXPECT_EQ(net::finalize(context_), Result::kSuccess);
    EXPECT_EQ(mesh::fake::open_objects(), 0u);
  }

  // Opens the listeners of `ranks` ranks.
  void listen(int ranks) {
    handles_.resize(static_cast<std::size_t>(ranks));
    listeners_.resize(handles_.size());
    for (std::size_t i = 0; i < handles_.size(); ++i)
      ASSERT_EQ(net::listen(context_, 0, handles_[i].data(), &listeners_[i]), Result::kSuccess);
  }

  // Calls `body(ring)` in a thread for each rank, except `absent`. Returns the errors, "" for success.
  std::vector<std::string> run(std::chrono::seconds limit, const std::function<void(Ring&)>& body, int absent = -1) {
    const int ranks = static_cast<int>(handles_.size());
    std::vector<std::string> errors;
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != absent) errors.emplace_back();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == absent) continue;
      threads.emplace_back([&, rank, &error = errors[threads.size()]] {
        const auto own = static_cast<std::size_t>(rank);
        try {
          Ring ring({rank, ranks}, 0, std::exchange(listeners_[own], nullptr),
                    handles_[(own + 1) % handles_.size()].data(), limit, nullptr);
          body(ring);
        } catch (const Failure& failure) {
          error = failure.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  void* context_ = nullptr;
  std::vector<std::array<std::byte, abi::kHandleBytes>> handles_;
  std::vector<void*> listeners_;
};

TEST_F(RingTest, CollectivesCarryAllBytes) {
  for (const int ranks : {1, 2, 4}) {
    listen(ranks);
    const auto body = [&](Ring& ring) {
      ring.barrier();
      const int rank = ring.place().rank;
      for (const std::size_t count : {0u, 1u, 8192u, 20000u}) {
        for (int root = 0; root < ranks; ++root) {
          Bytes data = bytes_of(rank, count);
          ring.broadcast(data.data(), count, root);
          EXPECT_EQ(data, bytes_of(root, count));
        }
        Bytes all(count * static_cast<std::size_t>(ranks)), expected;
        for (int other = 0; other < ranks; ++other)
          for (const std::uint8_t byte : bytes_of(other, count)) expected.push_back(byte);
        ring.all_gather(bytes_of(rank, count).data(), all.data(), count);
        EXPECT_EQ(all, expected);
      }
    };
    EXPECT_THAT(run(kLimit, body), Each(std::string()));
  }
}

TEST_F(RingTest, LibsharpGetsItsCollectives) {
  listen(3);
  const auto body = [&](Ring& ring) {
    const sharp_coll_out_of_band_colls collectives = Ring::collectives();
    EXPECT_EQ(collectives.barrier(&ring), 0);
    int value = ring.place().rank;
    EXPECT_EQ(collectives.bcast(&ring, &value, sizeof value, 2), 0);
    EXPECT_EQ(value, 2);
    for (int root = 0; root < 3; ++root) {
      std::vector<int> all(3, -1);
      value = 10 + ring.place().rank;
      EXPECT_EQ(collectives.gather(&ring, root, &value, ring.place().rank == root ? all.data() : nullptr, sizeof value),
                0);
      if (ring.place().rank == root) EXPECT_EQ(all, (std::vector<int>{10, 11, 12}));
    }
    EXPECT_FALSE(ring.failure());
  };
  EXPECT_THAT(run(kLimit, body), Each(std::string()));
}

TEST_F(RingTest, AllRanksFailWhenOneCloses) {
  listen(4);
  const auto body = [&](Ring& ring) {
    ring.barrier();
    if (ring.place().rank == 2) return;
    const sharp_coll_out_of_band_colls collectives = Ring::collectives();
    EXPECT_EQ(collectives.barrier(&ring), -1);
    ASSERT_TRUE(ring.failure());
    EXPECT_EQ(ring.failure()->code(), Result::kRemoteError);
    EXPECT_THAT(ring.failure()->what(), AllOf(HasSubstr("connect: rank "), HasSubstr(" has no connection to rank ")));
    EXPECT_EQ(collectives.barrier(&ring), -1);
    EXPECT_THAT(ring.failure()->what(), HasSubstr(" has no connection to rank "));  // the first error is kept
  };
  EXPECT_THAT(run(kLimit, body), Each(std::string()));
}

// Rank 1 closes its ring. Rank 0 receives from rank 2 for so long that a probe of rank 1 would fail: the net part
// reports a closed peer after 20 ms.
TEST_F(RingTest, ARankMayCloseBeforeThePreviousOneHasReceived) {
  listen(3);
  std::latch closed(1);
  const auto body = [&](Ring& ring) {
    ring.barrier();
    const int rank = ring.place().rank;
    if (rank == 1) {
      ring.close();
      closed.count_down();
      return;
    }
    closed.wait();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    for (std::uint8_t more = 1; more != 0;) {
      if (rank == 2) more = std::chrono::steady_clock::now() < end ? 1 : 0;
      ring.broadcast(&more, sizeof more, rank == 2 ? 2 : 1);  // rank 0 does not pass it on to rank 1
    }
  };
  EXPECT_THAT(run(kLimit, body), Each(std::string()));
}

TEST_F(RingTest, RanksFailWhenOneStopsListening) {
  listen(3);
  ASSERT_EQ(net::close_listen(listeners_[1]), Result::kSuccess);
  EXPECT_THAT(run(
                  kLimit, [](Ring& ring) { ring.barrier(); }, 1),
              Each(HasSubstr(" has no connection to rank ")));
}

// Rank 1 listens, and makes no call.
TEST_F(RingTest, TheTimeLimitNamesTheRankThatIsMissing) {
  listen(2);
  EXPECT_THAT(
      run(
          std::chrono::seconds(1), [](Ring& ring) { ring.barrier(); }, 1),
      Each(HasSubstr("connect: no answer from rank 1 of 2 after 1 s: it did not call connect, or is blocked: see "
                     "its log, or set NCCL_SHARP_CONNECT_TIMEOUT")));
  ASSERT_EQ(net::close_listen(listeners_[1]), Result::kSuccess);
}

// The rank's message to the next one has arrived, and the previous one never connects.
TEST_F(RingTest, ARankThatWaitsForThePreviousOneNoticesTheEndOfTheNextOne) {
  listen(3);
  std::thread next([&] {
    // Rank 0 receives the first message of rank 2, and ends without a connection to rank 1.
    void *comm = nullptr, *memory = nullptr, *request = nullptr;
    while (comm == nullptr) ASSERT_EQ(net::accept(listeners_[0], &comm, nullptr), Result::kSuccess);
    Bytes message(8192);
    ASSERT_EQ(net::reg_mr(comm, message.data(), message.size(), abi::kPointerHost, &memory), Result::kSuccess);
    void* data = message.data();
    std::size_t bytes = message.size();
    int tag = 1, done = 0;
    ASSERT_EQ(net::irecv(comm, 1, &data, &bytes, &tag, &memory, nullptr, &request), Result::kSuccess);
    while (done == 0) ASSERT_EQ(net::test(request, &done, nullptr), Result::kSuccess);
    ASSERT_EQ(net::dereg_mr(comm, memory), Result::kSuccess);
    ASSERT_EQ(net::close_recv(comm), Result::kSuccess);
    ASSERT_EQ(net::close_listen(listeners_[0]), Result::kSuccess);
  });
  Ring ring({2, 3}, 0, std::exchange(listeners_[2], nullptr), handles_[0].data(), kLimit, nullptr);
  try {
    ring.barrier();
    ADD_FAILURE() << "the barrier succeeded";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("connect: rank 2 has no connection to rank 0 of 3"));
  }
  next.join();
  ASSERT_EQ(net::close_listen(listeners_[1]), Result::kSuccess);
}

}  // namespace
}  // namespace sharp
