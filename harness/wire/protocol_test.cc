#include "harness/wire/protocol.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "fabric/system/descriptor_passing.h"
#include "fabric/system/process.h"
#include "harness/wire/channel.h"

namespace plugfest::wire {
namespace {

struct Ends {
  std::pair<Descriptor, Descriptor> sockets = make_socket_pair();
  std::optional<Channel> a{std::in_place, std::move(sockets.first)};
  std::optional<Channel> b{std::in_place, std::move(sockets.second)};
};

// An answer with fields of all kinds.
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
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(decode<Sample>(std::span(bytes).first(size)), WireError) << size;
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
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i >> 8 ^ i);
  std::thread sender([&] { ends.a->send(1, 1, body); });
  const auto frame = ends.b->receive();
  sender.join();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->body, body);
}

TEST(Channel, PassesADescriptor) {
  Ends ends;
  Pipe pipe = make_pipe();
  ends.a->send(1, 1, std::vector<std::byte>(2), pipe.write_end.get());
  pipe.write_end.close();
  Descriptor passed;
  ASSERT_TRUE(ends.b->receive(&passed));
  EXPECT_EQ(write(passed.get(), "x", 1), 1);
  passed.close();
  EXPECT_EQ(read_all(pipe.read_end.get()), "x");
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
  const FrameHeader header{kMaxBody + 1, 1, 1};
  ASSERT_EQ(write(ends.a->fd(), &header, sizeof header), static_cast<ssize_t>(sizeof header));
  EXPECT_THROW(ends.b->receive(), WireError);
}

TEST(Channel, SendsNothingOfAFrameThatIsTooLong) {
  Ends ends;
  EXPECT_THROW(ends.a->send(1, 1, std::vector<std::byte>(kMaxBody + 1)), WireError);
  EXPECT_FALSE(ends.b->poll());
}

TEST(Channel, CallsAFunctionWhileTheSocketIsFull) {
  Ends ends;
  const std::vector<std::byte> body(5'000'000);
  std::optional<Frame> frame;
  EXPECT_TRUE(ends.a->send(1, 1, body, -1, [&] { frame = ends.b->poll(); }));
  EXPECT_FALSE(frame);
  frame = ends.b->poll();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->body, body);
}

}  // namespace
}  // namespace plugfest::wire
