// Packets of a capture become messages with their acknowledgements.
#include "harness/trace/messages.h"

#include <gtest/gtest.h>

#include "harness/trace/timeline.h"

namespace plugfest::trace {
namespace {

constexpr std::uint32_t kSender = 0x11, kReceiver = 0x22;

CapturedJob job_of(std::vector<report::PacketRecord> packets) {
  CapturedJob job{.capture = {},
                  .first_ns = 1'000'000'000,
                  .comments = {},
                  .interfaces = {{"10.0.0.1", "a.eth0"}, {"10.0.0.2", "b.eth0"}}};
  for (std::size_t i = 0; i < packets.size(); ++i) packets[i].time = static_cast<double>(i) * 1e-6;
  job.capture.packets = std::move(packets);
  return job;
}
report::PacketRecord request(const std::string& what, std::uint32_t psn, const std::string& mark = "",
                             std::uint32_t queue_pair = kReceiver) {
  return {.from = "10.0.0.1",
          .to = "10.0.0.2",
          .what = what,
          .queue_pair = queue_pair,
          .psn = psn,
          .bytes = 100,
          .mark = mark};
}
report::PacketRecord acknowledgement(std::uint32_t psn, std::uint32_t queue_pair = kSender) {
  return {.from = "10.0.0.2", .to = "10.0.0.1", .what = "ACK", .queue_pair = queue_pair, .psn = psn, .mark = ""};
}

TEST(Messages, EndWithTheirAcknowledgement) {
  const std::vector<Message> messages = messages_of(
      job_of({request("WRITE first", 7), request("WRITE middle", 8), request("WRITE last", 9), acknowledgement(9)}));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].what, "WRITE");
  EXPECT_EQ(messages[0].packets, 3u);
  EXPECT_EQ(messages[0].bytes, 300u);
  EXPECT_EQ(messages[0].sender_queue_pair, kSender);
  EXPECT_EQ(messages[0].start_ns, 1'000'000'000);
  EXPECT_EQ(messages[0].acknowledged_ns, 1'000'003'000);
}

TEST(Messages, CanBeAcknowledgedTogetherAcrossTheEndOfTheNumbers) {
  const std::vector<Message> messages =
      messages_of(job_of({request("SEND only", 0xffffff), request("SEND only", 0), acknowledgement(0)}));
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_NE(messages[0].acknowledged_ns, 0);
  EXPECT_NE(messages[1].acknowledged_ns, 0);
}

TEST(Messages, AreDistinguishedByTheNumberOfTheirQueuePair) {
  const std::vector<Message> messages =
      messages_of(job_of({request("WRITE only", 500), request("WRITE only", 9000, "", kReceiver + 1),
                          acknowledgement(9000, kSender + 1), acknowledgement(500)}));
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].sender_queue_pair, kSender);
  EXPECT_EQ(messages[1].sender_queue_pair, kSender + 1);
}

TEST(Messages, CountRetransmissionsAndMayLackTheirAcknowledgement) {
  const std::vector<Message> messages =
      messages_of(job_of({request("WRITE first", 1), request("WRITE last", 2),
                          request("WRITE last", 2, "retransmission"), request("WRITE first", 3)}));
  ASSERT_EQ(messages.size(), 1u) << "the last one is not complete";
  EXPECT_EQ(messages[0].retransmissions, 1u);
  EXPECT_EQ(messages[0].acknowledged_ns, 0);
}

// Messages of 100 bytes on a queue pair of host a, one each microsecond from 1 s on.
std::vector<Message> sent(std::size_t count) {
  std::vector<Message> messages(count);
  for (std::size_t i = 0; i < count; ++i) {
    messages[i].from = "10.0.0.1";
    messages[i].what = "WRITE";
    messages[i].sender_queue_pair = kSender;
    messages[i].bytes = 100;
    messages[i].start_ns = 1'000'000'000 + static_cast<std::int64_t>(i) * 1000;
  }
  return messages;
}
Work work(std::uint64_t bytes, std::int64_t start_ns, std::uint32_t queue_pair = kSender) {
  return {.host = "a", .queue_pair = queue_pair, .bytes = bytes, .start_ns = start_ns, .stop_ns = 2'000'000'000};
}
constexpr std::int64_t kSecond = 1'000'000'000;

TEST(WorkOfMessages, IsInTheOrderOfItsStartOnEachQueuePair) {
  const std::vector<Work> works = {work(100, kSecond + 1000), work(100, kSecond), work(100, kSecond, kSender + 1)};
  EXPECT_EQ(work_of(job_of({}), sent(3), works), (std::vector<std::size_t>{1, 0, kNoWork}));
}

TEST(WorkOfMessages, MayHaveSeveralMessages) {
  const std::vector<Work> works = {work(200, kSecond), work(100, kSecond + 1)};
  EXPECT_EQ(work_of(job_of({}), sent(4), works), (std::vector<std::size_t>{0, 0, 1, kNoWork}));
}

TEST(WorkOfMessages, SkipsMessagesOfAnotherSizeOrTime) {
  std::vector<Message> messages = sent(4);
  messages[0].start_ns -= kSecond / 2;
  messages[1].bytes = 8;
  messages[3].start_ns += 2 * kSecond;
  EXPECT_EQ(work_of(job_of({}), messages, {work(100, kSecond), work(100, kSecond)}),
            (std::vector<std::size_t>{kNoWork, kNoWork, 0, kNoWork}));
}

TEST(Messages, AreBesideTheFaultsOfTheirNicInTheTimeline) {
  CapturedJob job = job_of({request("WRITE only", 1), request("WRITE only", 2), request("WRITE only", 3)});
  job.comments = {{1'000'000'000, "10.0.0.1", "faults from here: loss=1%"},
                  {1'000'001'000, "10.0.0.1", "faults from here: none"}};
  Recording recording;
  recording.events.push_back({1, 0, 0, 1, 1'000'000'000, 1'000'000'000, {}, {}});
  const std::string timeline = merge({recording}, &job);
  EXPECT_NE(timeline.find(R"("name":"loss=1%","pid":1,"tid":2,"ts":0.000,"dur":1.000)"), std::string::npos) << timeline;
  EXPECT_EQ(timeline.find("none"), std::string::npos) << timeline;
}

TEST(Messages, FollowTheWorkOfTheirNicInTheTimeline) {
  const std::int64_t start = 999'999'000, stop = 1'000'002'000;
  Recording recording;
  recording.host = "a";
  recording.communicators[1].numbers = {{Key::kId, 1}, {Key::kRank, 0}};
  const auto add = [&](std::uint64_t id, std::uint64_t parent, int bit, Attributes attributes) {
    recording.events.push_back({id, parent, bit, 1, start, stop, {}, std::move(attributes)});
  };
  add(1, 0, 1, {{}, {{Key::kFunction, "AllReduce"}}});
  add(2, 1, 3, {{{Key::kSends, 1}, {Key::kPeer, 1}}, {}});
  add(3, 2, 4, {});
  add(4, 3, 7, {{{Key::kQueuePair, kSender}, {Key::kBytes, 100}}, {}});
  const CapturedJob job = job_of({request("WRITE only", 1), acknowledgement(1)});
  const std::string timeline = merge({recording}, &job);
  EXPECT_NE(timeline.find("\"packets of a\""), std::string::npos) << timeline;
  EXPECT_NE(timeline.find("\"eth0 to b eth0, queue pair 0x11\""), std::string::npos) << timeline;
  EXPECT_NE(timeline.find(R"("ph":"s","bp":"e","cat":"transfer","name":"transfer","id":1099511627776)"),
            std::string::npos)
      << timeline;
  EXPECT_NE(timeline.find(R"("ph":"f","bp":"e","cat":"transfer","name":"transfer","id":1099511627776)"),
            std::string::npos);
  EXPECT_NE(timeline.find(R"("acknowledged":true,"transfer":0})"), std::string::npos) << timeline;
}

}  // namespace
}  // namespace plugfest::trace
