// Recordings of two ranks become a timeline, and their transfers tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fabric/system/testing.h"
#include "harness/abi/profiler.h"
#include "harness/trace/explain.h"
#include "harness/trace/ladder.h"
#include "harness/trace/timeline.h"
#include "harness/trace/transfers.h"

namespace plugfest::trace {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t kUs = 1000;
constexpr int kColl = abi::bit_of(abi::kProfileColl), kProxyOp = abi::bit_of(abi::kProfileProxyOp);
constexpr int kProxyStep = abi::bit_of(abi::kProfileProxyStep);

// A rank of a communicator; each sends to the next one and receives from the one before.
class Rank {
 public:
  explicit Rank(int rank, int ranks) : rank_(rank), ranks_(ranks) {
    recording_.host = std::string(1, static_cast<char>('a' + rank));
    recording_.boot_id = "boot";
    recording_.communicators[1].numbers = {{Key::kId, 0x77},
                                           {Key::kRank, static_cast<std::uint64_t>(rank)},
                                           {Key::kRanks, static_cast<std::uint64_t>(ranks)}};
  }
  // Adds a collective with a send and a receive. `sent`, `arrived`: when they have completed.
  void add_collective(std::int64_t start, std::int64_t sent, std::int64_t arrived) {
    const std::uint64_t task = add(kColl, 0, start, start + kUs);
    attributes().texts = {{Key::kFunction, "AllReduce"}, {Key::kDatatype, "ncclFloat32"}, {Key::kAlgorithm, "RING"}};
    attributes().numbers = {{Key::kSequence, ++sequence_}, {Key::kCount, 256}};
    for (const bool sends : {true, false}) {
      const std::int64_t stop = sends ? sent : arrived + 2 * kUs;
      const std::uint64_t operation = add(kProxyOp, task, start, stop);
      attributes().numbers = {{Key::kPeer, static_cast<std::uint64_t>((rank_ + (sends ? 1 : ranks_ - 1)) % ranks_)},
                              {Key::kChannel, 0},
                              {Key::kSends, sends}};
      add(kProxyStep, operation, start, stop);
      if (sends)
        recording_.events.back().states = {{abi::kStateSendGpuWait, start, 4096},  // the size of the message before
                                           {abi::kStateSendPeerWait, start + 2 * kUs, 4096},
                                           {abi::kStateSendWait, start + 5 * kUs, 1024}};
      else
        recording_.events.back().states = {{abi::kStateRecvWait, start + kUs, 0},
                                           {abi::kStateRecvFlushWait, arrived, 1024},
                                           {abi::kStateRecvGpuWait, arrived + kUs, 1024}};
      attributes().numbers = {{Key::kStep, 0}};
    }
  }
  Recording& recording() { return recording_; }

 private:
  Attributes& attributes() { return recording_.events.back().attributes; }
  std::uint64_t add(int bit, std::uint64_t parent, std::int64_t start, std::int64_t stop) {
    const std::uint64_t id = std::uint64_t{1} << kThreadShift | (recording_.events.size() + 1);
    recording_.events.push_back({id, parent, bit, 1, start, stop, {}, {}});
    return id;
  }

  int rank_, ranks_;
  std::uint64_t sequence_ = 0;
  Recording recording_;
};

// Eight allreduces; messages of the slow senders take 500 us, others 10 us. Rank 2 begins 100 us later than the others.
std::vector<Recording> ring(int ranks = 3, const std::set<int>& slow = {1}) {
  std::vector<Recording> recordings;
  const auto begun = [](int rank) { return (rank == 2 ? 100 : 0) * kUs; };
  for (int rank = 0; rank < ranks; ++rank) {
    Rank one(rank, ranks);
    for (std::int64_t base = 0; base < 8 * 10'000 * kUs; base += 10'000 * kUs) {
      const auto done = [&](int sender) {
        const std::int64_t posted = std::max(begun(sender) + 5 * kUs, begun((sender + 1) % ranks) + kUs);
        return base + posted + (slow.contains(sender) ? 500 : 10) * kUs;
      };
      one.add_collective(base + begun(rank), done(rank), done((rank + ranks - 1) % ranks));
    }
    recordings.push_back(one.recording());
  }
  return recordings;
}

TEST(Transfers, MatchEachSendWithItsReceive) {
  const Transfers transfers = transfers_of(ring());
  ASSERT_THAT(transfers.transfers, SizeIs(48));
  EXPECT_THAT(transfers.operations, SizeIs(8));
  const std::vector<std::size_t> others = matched(transfers);
  for (std::size_t i = 0; i < others.size(); ++i) {
    ASSERT_NE(others[i], kUnmatched);
    const Transfer &one = transfers.transfers[i], &other = transfers.transfers[others[i]];
    EXPECT_EQ(one.rank, other.peer);
    EXPECT_EQ(one.operation, other.operation);
    EXPECT_NE(one.sends, other.sends);
  }
}

TEST(Transfers, HaveTheSizesOfTheirOwnMessages) {
  for (const Transfer& one : transfers_of(ring()).transfers) EXPECT_EQ(one.bytes, 1024u);
}

TEST(Transfers, AreAlignedByTheRealTimeClocksOfTheirMachines) {
  std::vector<Recording> recordings = ring();
  const std::string expected = json_line(transfers_of(recordings));
  constexpr std::int64_t kBooted = 12'345'678;
  recordings[1].boot_id = "another";
  recordings[1].realtime_offset_ns = kBooted;
  for (RecordedEvent& event : recordings[1].events) {
    event.start_ns -= kBooted;
    event.stop_ns -= kBooted;
    for (RecordedState& state : event.states) state.time_ns -= kBooted;
  }
  EXPECT_EQ(json_line(transfers_of(recordings)), expected);
}

// `to` of each wait, in microseconds after the start of the transfer.
std::vector<std::pair<Wait, std::int64_t>> waits_of(const Transfer& transfer) {
  std::vector<std::pair<Wait, std::int64_t>> ends;
  std::int64_t reached = transfer.start;
  for (const auto& [kind, from, to] : transfer.waits()) {
    EXPECT_EQ(from, reached);
    ends.emplace_back(kind, (to - transfer.start) / kUs);
    reached = to;
  }
  EXPECT_EQ(reached, transfer.stop);
  return ends;
}

TEST(Transfers, WaitFromTheirStartToTheirEnd) {
  using testing::ElementsAre;
  using testing::Pair;
  const std::vector<Transfer> transfers = transfers_of(ring()).transfers;
  EXPECT_THAT(waits_of(transfers[0]), ElementsAre(Pair(kSendGpu, 2), Pair(kSendPeer, 5), Pair(kSendNetwork, 15)));
  EXPECT_THAT(waits_of(transfers[1]), ElementsAre(Pair(kReceivePlugin, 1), Pair(kReceiveData, 115),
                                                  Pair(kReceiveFlush, 116), Pair(kReceiveGpu, 117)));
}

TEST(Transfers, HaveNoWaitForAStateThatIsMissing) {
  std::vector<Recording> recordings = ring();
  for (RecordedEvent& event : recordings[0].events) event.states.clear();
  const Transfer send = transfers_of(recordings).transfers[0];
  EXPECT_EQ(send.accepted, send.start);
  EXPECT_EQ(waits_of(send).back().second, 15);
}

TEST(Timeline, HasAProcessForEachRankAndAnArrowForEachMessage) {
  const json document = json::parse(merge(ring()));
  std::map<std::string, int> processes, phases, names;
  for (const json& event : document.at("traceEvents")) {
    ++phases[event.at("ph")];
    if (event.at("name") == "process_name") ++processes[event.at("args").at("name")];
    ++names[event.at("name")];
  }
  EXPECT_THAT(processes, testing::ElementsAre(testing::Pair("rank 0 on a", 1), testing::Pair("rank 1 on b", 1),
                                              testing::Pair("rank 2 on c", 1)));
  EXPECT_EQ(phases["s"], 24);
  EXPECT_EQ(phases["f"], 24);
  EXPECT_EQ(names["AllReduce"], 24);
  EXPECT_EQ(names["send 0"], 24);
  EXPECT_EQ(names["waits for the peer"], 24);
}

TEST(Timeline, DrawsAnOperationUntilItsLastTransferEnds) {
  const json events = json::parse(merge(ring())).at("traceEvents");
  for (const json& event : events)
    if (event.at("name") == "AllReduce") EXPECT_GT(event.at("dur"), 10.0);
}

TEST(Explain, NamesTheSlowestLinkAndTheLatestRank) {
  const std::string text = explain(transfers_of(ring()));
  EXPECT_THAT(text,
              AllOf(HasSubstr("AllReduce, 1024 bytes, RING , 8 calls; milliseconds for each call\n"),
                    HasSubstr("slowest link: rank 1 on b to rank 2 on c: a message takes 50.0 times as long as on "
                              "the others\n"),
                    HasSubstr("latest rank: rank 2 on c begins on average 0.10 ms after the first\n"),
                    Not(HasSubstr("all links"))));
}

TEST(Explain, NamesTheRankWhoseLinksAreAllSlow) {
  EXPECT_THAT(explain(transfers_of(ring(5, {3, 4}))),
              HasSubstr("all links of rank 4 on e are slow: examine its cable and its NIC\n"));
  EXPECT_THAT(explain(transfers_of(ring(5, {4}))), Not(HasSubstr("all links")));
}

TEST(Explain, CountsTheWaitsForAProcessorByTheirPartOfEachOperation) {
  std::vector<Recording> recordings = ring();
  // Half of the interval lies in the first operation of rank 0, which ends with its receive.
  const Transfers before = transfers_of(recordings);
  const std::int64_t end = before.transfers[1].stop;
  recordings[0].processor_waits = {{1, end - 50 * kUs, end + 50 * kUs, 80 * kUs}};
  EXPECT_THAT(explain(before), HasSubstr("rank 0 on a              0.00      0.12      0.00 "));
  for (Recording& one : recordings) one.events.resize(5);  // one operation
  EXPECT_THAT(explain(transfers_of(recordings)), HasSubstr("rank 0 on a              0.00      0.12      0.04 "));
  EXPECT_THAT(merge(recordings), AllOf(HasSubstr("thread 1 waits for a processor"), HasSubstr("0.1 of 0.1 ms")));
}

TEST(Explain, CountsTheRetransmissionsOfALink) {
  Transfers transfers = transfers_of(ring());
  EXPECT_THAT(explain(transfers), Not(HasSubstr("retransmissions")));
  for (Transfer& one : transfers.transfers)
    if (one.rank == 1 && one.sends) one.retransmissions = 2;
  EXPECT_THAT(explain(transfers), AllOf(HasSubstr("us per message retransmissions\n"),
                                        HasSubstr("rank 1 on b to rank 2 on c                         8       1024 "
                                                  "          500.0              16\n")));
}

TEST(Explain, TakesTheMeanOfTheMiddleMessagesIfTheirNumberIsEven) {
  Transfers transfers = transfers_of(ring());
  for (Transfer& one : transfers.transfers)
    if (one.rank == 0 && one.sends && one.operation < 4) one.stop += 10 * kUs;
  std::map<std::string, double> medians;
  for (const Link& link : links_of(transfers)) medians[link.from] = link.median_ns;
  EXPECT_EQ(medians["rank 0 on a"], 15'000);
  EXPECT_EQ(medians["rank 2 on c"], 10'000);
}

TEST(Explain, SaysWhatIsMissing) {
  std::vector<Recording> recordings = ring();
  recordings.resize(1);
  EXPECT_THAT(explain(transfers_of(recordings)), HasSubstr("name the recordings of all ranks\n"));
  EXPECT_THAT(explain(transfers_of({})), HasSubstr("no transfer through a network"));
}

TEST(LadderPage, HasALineForEachRankAndAnArrowForEachMessageOfTheSlowestCall) {
  std::vector<Recording> recordings = ring();
  recordings[0].host = "a<b";
  Transfers transfers = transfers_of(recordings);
  for (Transfer& one : transfers.transfers)
    if (one.operation == 5 && one.rank == 0 && one.sends) {
      one.stop += 900 * kUs;
      one.retransmissions = 3;
    }
  const std::string page = ladder_page(transfers);
  const auto count = [&](std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<h2>AllReduce, 1024 bytes, RING , call 6</h2>"), 1u) << page;
  EXPECT_EQ(count("<h2>"), 1u);
  EXPECT_EQ(count("class=\"rank\""), 3u);
  EXPECT_EQ(count("class=\"message\""), 2u);
  EXPECT_EQ(count("class=\"lossy message\""), 1u);
  EXPECT_EQ(count("1024 bytes, 10.0 us, 3 retransmissions</title>"), 1u);
  EXPECT_EQ(count("rank 0 on a&lt;b</text>"), 1u);
  EXPECT_EQ(count("a<b"), 0u);
  EXPECT_THAT(page, HasSubstr("slowest link: rank 1 on b to rank 2 on c"));
}

TEST(Explain, ReadsATimelineAsWellAsRecordings) {
  const ScratchFolder folder;
  const std::string path = folder / "t.json";
  std::ofstream(path) << merge(ring());
  EXPECT_EQ(explain(read_transfers({path})), explain(transfers_of(ring())));
  const auto error_of = [&](const std::string& content) {
    std::ofstream(path, std::ios::trunc) << content;
    try {
      read_transfers({path});
      return std::string();
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(error_of("{\"traceEvents\":[]}"),
            path +
                ": no transfers of NCCL in it: name a file of --trace or of trace merge, or the recordings of all "
                "ranks");
  EXPECT_THAT(error_of("{\n\"plugfest\":{\"members\":[],\"operations\":[],\"arrivals\":[],\"processor_waits\":[],"
                       "\"transfers\":[[1]]}}"),
              HasSubstr(path + ": transfers: not a list of 15 numbers"));
}

}  // namespace
}  // namespace plugfest::trace
