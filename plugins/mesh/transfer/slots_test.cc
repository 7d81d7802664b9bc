#include "plugins/mesh/transfer/slots.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>
#include <vector>

#include "plugins/mesh/transfer/request.h"

namespace mesh {
namespace {

Group group(std::uint32_t number, std::vector<std::int32_t> tags) {
  Group made;
  made.number = number;
  made.count = static_cast<std::uint32_t>(tags.size());
  for (std::size_t i = 0; i < tags.size(); ++i) made.slots[i] = {number * 100 + i, 1, tags[i], {}, 0};
  return made;
}

std::vector<std::byte> bytes_of(const Group& group, std::size_t lanes) {
  std::vector<std::byte> bytes(group.bytes(lanes));
  std::byte* end = write_header(group.number, group.count, group.tagged, bytes.data());
  for (std::uint32_t i = 0; i < group.count; ++i) end = write_slot(group.slots[i], lanes, end);
  EXPECT_EQ(end, bytes.data() + bytes.size());
  return bytes;
}

bool push(SlotQueue& queue, const Group& group) { return queue.push(bytes_of(group, 1), 1); }

// Sends with this tag. Returns "GROUP.INDEX" of the slot that it takes, or "waits".
std::string send(SlotQueue& queue, std::int32_t tag) {
  const std::optional<Match> match = queue.find(tag);
  if (!match) return "waits";
  EXPECT_EQ(match->slot.address, match->group * 100 + match->index);
  queue.take(*match);
  return std::to_string(match->group) + "." + std::to_string(match->index);
}

TEST(SlotsTest, AllBitsOfATagCount) {
  SlotQueue queue;
  push(queue, group(0, {5, 65541, 0x7fffffff, -1}));
  EXPECT_EQ(send(queue, 65541), "0.1");
  EXPECT_EQ(send(queue, 0x7fffffff), "0.2");
  EXPECT_EQ(send(queue, -1), "0.3");
  EXPECT_EQ(send(queue, 5), "0.0");
}

TEST(SlotsTest, HoldsABoundedNumberOfGroups) {
  SlotQueue queue;
  constexpr std::uint32_t kMax = SlotQueue::kMax;
  for (std::uint32_t i = 0; i < kMax; ++i) EXPECT_TRUE(push(queue, group(i, {1})));
  EXPECT_FALSE(push(queue, group(kMax, {1})));
  EXPECT_EQ(send(queue, 1), "0.0");
  EXPECT_TRUE(push(queue, group(kMax, {1})));
}

TEST(SlotsTest, RefusesGroupsOutOfOrder) {
  SlotQueue queue;
  EXPECT_FALSE(push(queue, group(1, {1})));
  EXPECT_TRUE(push(queue, group(0, {1})));
  EXPECT_FALSE(push(queue, group(0, {1})));
}

TEST(SlotsTest, RandomSendsMatchAsInAReferenceModel) {
  std::mt19937 random(23);
  SlotQueue queue;
  std::deque<std::vector<int>> model;  // tags of the free slots by index, -1 once taken
  std::uint32_t first = 0, next = 0;
  for (int step = 0; step < 100000; ++step) {
    if (random() % 4 == 0 && model.size() < SlotQueue::kMax) {
      std::vector<std::int32_t> tags(random() % kMaxGroup + 1);
      for (auto& tag : tags) tag = static_cast<std::int32_t>(random() % 4);
      ASSERT_TRUE(push(queue, group(next++, tags)));
      model.push_back(tags);
    } else {
      const auto tag = static_cast<std::int32_t>(random() % 4);
      std::string expected = "waits";
      if (!model.empty()) {
        std::vector<int>& oldest = model.front();
        if (const auto slot = std::find(oldest.begin(), oldest.end(), tag); slot != oldest.end()) {
          expected = std::to_string(first) + "." + std::to_string(slot - oldest.begin());
          *slot = -1;
        }
        if (std::all_of(oldest.begin(), oldest.end(), [](int value) { return value == -1; })) {
          model.pop_front();
          ++first;
        }
      }
      ASSERT_EQ(send(queue, tag), expected);
    }
  }
}

TEST(SlotsTest, ParsesOnlyBytesThatAreExactlyOneGroup) {
  Group sent = group(3, {1, 2});
  sent.slots[1].remote_keys = {11, 12, 13, 14};
  for (const std::size_t lanes : {1u, 2u, 3u, 4u}) {
    std::vector<std::byte> bytes = bytes_of(sent, lanes);
    const std::size_t size = bytes.size();
    bytes.resize(kMaxGroupBytes + 8);
    Group back;
    ASSERT_TRUE(parse_group({bytes.data(), size}, lanes, back));
    EXPECT_EQ(back.number, 3u);
    EXPECT_EQ(back.slots[1].tag, 2);
    for (std::size_t i = 0; i < lanes; ++i) EXPECT_EQ(back.slots[1].remote_keys[i], 11 + i);
    EXPECT_FALSE(parse_group({bytes.data(), size - 1}, lanes, back));
    EXPECT_FALSE(parse_group({bytes.data(), size + 8}, lanes, back));
    EXPECT_FALSE(parse_group({bytes.data(), 4}, lanes, back));
    bytes[4] = std::byte{0};
    EXPECT_FALSE(parse_group({bytes.data(), Group::kHeaderBytes}, lanes, back));
    bytes[4] = std::byte{9};
    EXPECT_FALSE(parse_group({bytes.data(), kMaxGroupBytes}, lanes, back));
  }
}

TEST(SlotsTest, DecodesWhatItEncodesAsArrival) {
  for (const Arrival arrival :
       {Arrival{0, 0, 1, 0}, Arrival{63, 7, Arrival::kMaxChunks, Arrival::kMaxPieces}, Arrival{32, 5, 17, 1000}}) {
    const Arrival back = Arrival::decode(arrival.encode());
    EXPECT_EQ(back.group, arrival.group);
    EXPECT_EQ(back.index, arrival.index);
    EXPECT_EQ(back.chunks, arrival.chunks);
    EXPECT_EQ(back.pieces, arrival.pieces);
  }
  EXPECT_EQ(Arrival::decode(Arrival{64 + 3, 0, 1, 0}.encode()).group, 3u);
}

TEST(RequestTest, DecodesOnlyPointersOfRequests) {
  const RequestId id = {.comm = 65535, .comm_serial = 255, .index = 255, .generation = 65535};
  const std::optional<RequestId> back = RequestId::from(id.pointer());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->comm, id.comm);
  EXPECT_EQ(back->comm_serial, id.comm_serial);
  EXPECT_EQ(back->index, id.index);
  EXPECT_EQ(back->generation, id.generation);
  EXPECT_NE(RequestId{}.pointer(), nullptr);
  EXPECT_FALSE(RequestId::from(nullptr));
  EXPECT_FALSE(RequestId::from(reinterpret_cast<void*>(1)));
  int local = 0;
  EXPECT_FALSE(RequestId::from(&local));
}

}  // namespace
}  // namespace mesh
