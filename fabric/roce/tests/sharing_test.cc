// Several processes share UDP port 4791 of one address, also after one of them ends. Each NIC object takes a slot and a
// socket of its own, so three NICs in one process behave like three processes.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "fabric/roce/qp/destination.h"
#include "fabric/roce/testing/two_nics.h"

namespace plugfest::roce {
namespace {

struct Pair {
  Side here;
  Side there;
  Pair() : here(loopback_address(1)), there(loopback_address(2)) {
    here.connect(there, {});
    there.connect(here, {});
  }
};

void expect_write_arrives(Pair& pair, std::uint32_t seed) {
  fill(pair.here.buffer, seed);
  ASSERT_EQ(pair.here.post_send(IBV_WR_RDMA_WRITE, 1, 0, 100000,
                                [&](ibv_send_wr& request) {
                                  request.wr.rdma = {pair.there.at(0), pair.there.region->key()};
                                }),
            0);
  ASSERT_EQ(wait_for(pair.here, pair.there, 1).front().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(pair.here.buffer.data(), pair.there.buffer.data(), 100000), 0);
}

TEST(Sharing, ThreeOnOneAddressDoNotMix) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 3; ++i) pairs.push_back(std::make_unique<Pair>());
  for (std::uint32_t i = 0; i < 3; ++i) expect_write_arrives(*pairs[i], i);
  for (const auto& pair : pairs) EXPECT_EQ(pair->there.nic.counters().forwarded_packets, 0u);
}

TEST(Sharing, OthersContinueWhenOneEnds) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 3; ++i) pairs.push_back(std::make_unique<Pair>());
  // The third socket now has the number of the first one. The kernel gives packets for the third number to any socket,
  // whose process forwards them.
  pairs.erase(pairs.begin());
  for (std::uint32_t i = 0; i < 2; ++i) expect_write_arrives(*pairs[i], 10 + i);
}

// Forwarding is temporary: a process that receives packets of others updates the socket map.
TEST(Sharing, PacketsReachTheRightProcessAgainAfterOneEnds) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 5; ++i) pairs.push_back(std::make_unique<Pair>());
  pairs.erase(pairs.begin() + 3);
  pairs.erase(pairs.begin());
  pairs.push_back(std::make_unique<Pair>());  // takes the slot of the first one, and another socket number
  auto forwarded = [&] {
    std::uint64_t count = 0;
    for (const auto& pair : pairs)
      count += pair->here.nic.counters().forwarded_packets + pair->there.nic.counters().forwarded_packets;
    return count;
  };
  std::uint64_t before = forwarded();
  const auto start = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0;; ++i) {
    for (const auto& pair : pairs) expect_write_arrives(*pair, i);
    const std::uint64_t after = forwarded();
    if (i > 0 && after == before) break;
    before = after;
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "still forwarded";
  }
  EXPECT_GT(before, 0u) << "no packet was forwarded: this kernel does not renumber sockets";
}

// The kernel merges packets of one sender for different processes: a batch may contain packets of two messages.
TEST(Sharing, PacketsOfAnotherProcessInABatchAreForwarded) {
  Pair first, second;
  constexpr std::uint32_t kPacketBytes = 1024;
  constexpr std::uint32_t kBytes = 4 * kPacketBytes;
  std::vector<std::uint8_t> payload(kBytes);
  fill(payload, 5);
  const NicContext sender = first.there.nic.context();
  {
    const std::lock_guard lock(sender.lock);
    const Destination here = {address_of(first.there.address), address_of(first.here.address), 0, 64};
    const Path path = path_to(here, sender.ports, first.there.queue_pair->number());
    const auto add = [&](const Side& receiver, Operation operation, std::uint32_t packet) {
      Headers headers;
      headers.operation = operation;
      headers.destination = receiver.queue_pair->number();
      headers.psn = Psn(Attributes{}.psn) + packet;
      headers.address = receiver.at(0);
      headers.key = receiver.region->key();
      headers.length = kBytes;
      const iovec part = {payload.data() + packet * kPacketBytes, kPacketBytes};
      ASSERT_TRUE(sender.batch.add(path, headers, {&part, 1}, kPacketBytes));
    };
    for (Pair* const pair : {&first, &second}) add(pair->here, Operation::kWriteFirst, 0);
    ASSERT_TRUE(sender.batch.flush());
    for (Pair* const pair : {&first, &second})
      for (const std::uint32_t packet : {1u, 2u}) add(pair->here, Operation::kWriteMiddle, packet);
    ASSERT_TRUE(sender.batch.flush());
    for (Pair* const pair : {&first, &second}) add(pair->here, Operation::kWriteLast, 3);
    ASSERT_TRUE(sender.batch.flush());
  }
  const auto received = [](const Pair& pair) { return pair.here.nic.counters().received_packets; };
  while (received(first) + received(second) < 8)
    for (Pair* const pair : {&first, &second}) pair->here.completions.poll(0, nullptr);
  EXPECT_EQ(first.here.nic.counters().unknown_queue_pairs, 0u);
  for (Pair* const pair : {&first, &second})
    EXPECT_EQ(std::memcmp(payload.data(), pair->here.buffer.data(), kBytes), 0);
}

TEST(Sharing, FreeSlotIsReused) {
  auto first = std::make_unique<Pair>();
  auto second = std::make_unique<Pair>();
  const std::uint32_t slot = first->here.queue_pair->number() >> 16;
  EXPECT_NE(slot, second->here.queue_pair->number() >> 16);
  first.reset();
  Pair third;
  EXPECT_EQ(third.here.queue_pair->number() >> 16, slot);
  expect_write_arrives(third, 1);
  expect_write_arrives(*second, 2);
}

}  // namespace
}  // namespace plugfest::roce
