// Messages and channels between controller and rank; patterns and plans of streams.
#include "harness/wire/protocol.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "harness/rank/pattern.h"
#include "harness/wire/channel.h"

namespace plugfest::rank {
namespace {

struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a.emplace(Descriptor(fds[0]));
    b.emplace(Descriptor(fds[1]));
  }
  std::optional<Channel> a;
  std::optional<Channel> b;
};

/// An answer with fields of all kinds.
struct Sample : CalledAnswer {
  std::optional<std::string> absent;
  std::optional<std::string> present;
  PLUGFEST_FIELDS_AFTER(CalledAnswer, absent, present)
};

Sample an_answer() {
  Sample answer;
  answer.code = -3;
  answer.end_ns = INT64_MIN;
  answer.damage = "wrote past the end";
  answer.outputs = {{7, {}}, {0, {std::byte{1}, std::byte{255}}}};
  answer.present = "/sys";
  return answer;
}

TEST(Wire, DecodesWhatItEncoded) {
  const auto copy = decode<Sample>(encode(an_answer()));
  EXPECT_EQ(copy.code, -3);
  EXPECT_EQ(copy.end_ns, INT64_MIN);
  EXPECT_EQ(copy.damage, "wrote past the end");
  ASSERT_EQ(copy.outputs.size(), 2u);
  EXPECT_EQ(copy.outputs[0].number, 7u);
  EXPECT_EQ(copy.outputs[1].bytes, an_answer().outputs[1].bytes);
  EXPECT_EQ(copy.absent, std::nullopt);
  EXPECT_EQ(copy.present, "/sys");
}

TEST(Wire, RefusesShorterAndLongerMessages) {
  std::vector<std::byte> bytes = encode(an_answer());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode<Sample>(std::span(bytes).first(size)), WireError) << size;
  }
  bytes.push_back({});
  EXPECT_THROW(decode<Sample>(bytes), WireError);
}

TEST(Wire, DecodesOrRefusesRandomBytes) {
  std::mt19937 random(1);
  const std::vector<std::byte> good = encode(an_answer());
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = good;
    for (int changes = 0; changes < 3; ++changes) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    try {
      decode<Sample>(bytes);
    } catch (const WireError&) {
    }
  }
}

TEST(Channel, KeepsFrameBoundaries) {
  Ends ends;
  ends.a->send(1, 10, std::vector<std::byte>(3));
  ends.a->send(2, 20, {});
  const auto first = ends.b->receive();
  const auto second = ends.b->poll();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->header.id, 1u);
  EXPECT_EQ(first->body.size(), 3u);
  EXPECT_EQ(second->header.kind, 20u);
  EXPECT_FALSE(ends.b->poll());
}

TEST(Channel, ReassemblesLongFrames) {
  Ends ends;
  std::vector<std::byte> body(5'000'000);
  fill_pattern(body.data(), body.size(), 9);
  std::thread sender([&] { ends.a->send(1, 1, body); });
  const auto frame = ends.b->receive();
  sender.join();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->body, body);
}

TEST(Channel, PassesADescriptor) {
  Ends ends;
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  ends.a->send(1, 1, std::vector<std::byte>(2), fds[1]);
  int passed = -1;
  ASSERT_TRUE(ends.b->receive(&passed));
  ASSERT_GE(passed, 0);
  EXPECT_EQ(write(passed, "x", 1), 1);
  char got = 0;
  EXPECT_EQ(read(fds[0], &got, 1), 1);
  EXPECT_EQ(got, 'x');
  for (const int fd : {fds[0], fds[1], passed}) close(fd);
}

TEST(Channel, ReportsThatThePeerHasClosed) {
  Ends ends;
  ends.a.reset();
  EXPECT_FALSE(ends.b->poll());
  EXPECT_TRUE(ends.b->closed());
  EXPECT_FALSE(ends.b->receive());
  EXPECT_FALSE(ends.b->send(1, 1, std::vector<std::byte>(8)));
}

TEST(Channel, RefusesFramesThatAreTooLong) {
  Ends ends;
  const FrameHeader header{kLargestBody + 1, 1, 1};
  ASSERT_EQ(write(ends.a->fd(), &header, sizeof header), static_cast<ssize_t>(sizeof header));
  EXPECT_THROW(ends.b->receive(), WireError);
}

TEST(Pattern, ComparesEveryByte) {
  for (const std::size_t size : {0u, 1u, 7u, 8u, 9u, 1000u}) {
    std::vector<std::byte> bytes(size);
    fill_pattern(bytes.data(), size, 5);
    EXPECT_EQ(compare_pattern(bytes.data(), size, 5).bytes, 0u);
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] ^= std::byte{1};
      const Difference difference = compare_pattern(bytes.data(), size, 5);
      EXPECT_EQ(difference.bytes, 1u);
      EXPECT_EQ(difference.offset, i);
      EXPECT_EQ(difference.got ^ difference.expected, 1);
      bytes[i] ^= std::byte{1};
    }
  }
}

TEST(Pattern, DependsOnlyOnSeedAndPosition) {
  std::vector<std::byte> bytes(100);
  fill_pattern(bytes.data(), bytes.size(), 5);
  EXPECT_EQ(compare_pattern(bytes.data(), 13, 5).bytes, 0u);
}

TEST(Pattern, DiffersInEveryWordForDifferentSeeds) {
  std::vector<std::uint64_t> one(512), other(512);
  fill_pattern(one.data(), 4096, 1);
  for (std::uint64_t seed = 2; seed < 50; ++seed) {
    fill_pattern(other.data(), 4096, seed);
    for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NE(one[i], other[i]) << seed;
  }
}

Stream a_plan() {
  Stream stream;
  stream.count = 1000;
  stream.seed = 42;
  stream.sizes = {0, 1, 4096};
  stream.group = 5;
  return stream;
}

TEST(StreamPlan, GroupsCoverEveryMessageOnce) {
  const StreamPlan plan(a_plan());
  std::uint64_t next = 0;
  std::set<std::uint32_t> widths;
  for (Group group = plan.next({0, 0, 0}); group.width != 0; group = plan.next(group)) {
    EXPECT_EQ(group.first, next);
    next += group.width;
    widths.insert(group.width);
    std::vector<std::uint32_t> order = plan.posting_order(group);
    std::sort(order.begin(), order.end());
    std::vector<std::uint32_t> all(group.width);
    std::iota(all.begin(), all.end(), 0u);
    EXPECT_EQ(order, all);
  }
  EXPECT_EQ(next, 1000u);
  EXPECT_EQ(widths, (std::set<std::uint32_t>{1, 2, 3, 4, 5}));
}

TEST(StreamPlan, EveryMessageHasItsOwnContents) {
  const StreamPlan plan(a_plan());
  std::set<std::uint64_t> seen;
  for (std::uint64_t k = 0; k < 1000; ++k) seen.insert(plan.contents(k));
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(StreamPlan, RefusesEmptySizes) {
  Stream stream = a_plan();
  stream.sizes.clear();
  EXPECT_THROW(StreamPlan{stream}, std::invalid_argument);
}

}  // namespace
}  // namespace plugfest::rank
