// TU rules: contexts, answers and threads of a tuner plugin.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/interfaces/interface_rule.h"
#include "harness/abi/tuner.h"

namespace plugfest::conformance {

namespace {

constexpr std::size_t kCosts = std::size_t{abi::kTunerAlgorithms} * abi::kTunerProtocols;

// The arguments of getCollInfo for one collective.
struct Question {
  int function = 0;  // an ncclFunc_t: broadcast, reduce, allgather, reduce-scatter, allreduce
  std::size_t bytes = 0;
  int operations = 1;
  int registered = 0;
  std::vector<float> costs = std::vector<float>(kCosts, 1);

  std::string text() const { return fmt::format("function {}, {} bytes, {} operations", function, bytes, operations); }
};

// What getCollInfo wrote.
struct Answer {
  std::vector<float> costs;
  int algorithm = -1, protocol = -1, channels = 0;

  bool operator==(const Answer& other) const {
    const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    return algorithm == other.algorithm && protocol == other.protocol && channels == other.channels &&
           std::equal(costs.begin(), costs.end(), other.costs.begin(), other.costs.end(), same);
  }
};

class TunerRule : public InterfaceRule {
 protected:
  // A communicator of 2 to 64 ranks, as NCCL opens it.
  std::uint64_t open(Rank& rank, std::size_t ranks, std::uint64_t id) {
    CallArguments arguments = tuner_arguments(ranks, ranks / 2);
    arguments.emplace("commId", id);
    return rank.call("init", arguments).pointer("*context");
  }
  void close(Rank& rank, std::uint64_t context) {
    rank.call(api() >= 5 ? "finalize" : "destroy", {{"context", context}});
  }

  Question random_question() {
    Question question{.function = static_cast<int>(random_between(0, 4)),
                      .bytes = std::size_t{1} << random_between(0, 33),
                      .operations = static_cast<int>(random_between(1, 4)),
                      .registered = static_cast<int>(random_between(0, 1))};
    // Few combinations exist for a function and a communicator. One of them always does.
    for (float& cost : question.costs)
      cost = random_between(0, 1) == 0 ? abi::kTunerIgnore : static_cast<float>(random_between(1, 100'000));
    question.costs[random_between(0, kCosts - 1)] = 50;
    return question;
  }

  Started<CallOutcome> start_ask(Rank& rank, std::uint64_t context, const Question& question) {
    const auto* const first = reinterpret_cast<const std::byte*>(question.costs.data());
    return rank.start_call("getCollInfo", {{"context", context},
                                           {"collType", question.function},
                                           {"nBytes", question.bytes},
                                           {"numPipeOps", question.operations},
                                           {"collCostTable", std::vector<std::byte>(first, first + 4 * kCosts)},
                                           {"numAlgo", abi::kTunerAlgorithms},
                                           {"numProto", abi::kTunerProtocols},
                                           {"regBuff", question.registered},
                                           {"*algorithm", -1},
                                           {"*protocol", -1},
                                           {"*nChannels", 0}});
  }
  Answer answer_of(const CallOutcome& outcome) {
    require_success(outcome);
    Answer answer{.costs = {}};
    answer.costs.resize(outcome.bytes("collCostTable").size() / sizeof(float));
    std::memcpy(answer.costs.data(), outcome.bytes("collCostTable").data(), answer.costs.size() * sizeof(float));
    answer.channels = outcome.integer("*nChannels");
    if (api() == 2) answer.algorithm = outcome.integer("*algorithm");
    if (api() == 2) answer.protocol = outcome.integer("*protocol");
    return answer;
  }
  Answer ask(Rank& rank, std::uint64_t context, const Question& question) {
    return answer_of(start_ask(rank, context, question).get());
  }
};

}  // namespace

RULE_ON(
    TunerRule, TU_01, Must, ApiRange::tuner(),  //
    .title = "each symbol is an exported struct of its version's size",
    .text =
        "ncclTunerPlugin_vN is a data object with default visibility and has the size of that version's struct. Its "
        "name and its functions are set; getChunkSize may be NULL.",
    .source = "plugin/tuner/tuner_v*.cc; plugin/tuner.cc: ncclTunerPluginLoad",
    .why = "NCCL reads the struct of its own headers at the symbol and calls its functions without a check.",
    .check = "Reads the ELF symbols of the file without loading it, and the struct after init.",
    .blind = "A function that is set and has other parameters.") {
  Rank rank = ready_rank();
  require_table(rank);
}

RULE_ON(TunerRule, TU_02, Must, ApiRange::tuner(),  //
        .title = "each communicator has its own context",
        .text =
            "init succeeds for each communicator, even after the last context was closed. Contexts are closed in any "
            "order, and the others stay usable.",
        .source = "plugin/tuner.cc: ncclTunerPluginLoad and ncclTunerPluginUnload, once for each communicator",
        .why = "A process has one context for each communicator and GPU, and destroys them in any order.",
        .check = "Opens 12 contexts, of which 1 to 4 exist at a time, closes them in a random order, and asks each.",
        .faults = {{"aws/aws-ofi-nccl#1254", "a tuner failed when it was opened again"}}) {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  std::vector<std::uint64_t> contexts;
  const auto end = [&](std::uint64_t context) {
    close(rank, context);
    for (const std::uint64_t other : contexts) ask(rank, other, random_question());
  };
  for (std::uint64_t number = 0; number < 12; ++number) {
    contexts.push_back(open(rank, 2u << random_between(0, 5), number));
    if (contexts.size() == 4) end_all_but(random_between(0, 1), contexts, end);
  }
  end_all_but(0, contexts, end);
}

RULE_ON(TunerRule, TU_03, Must, ApiRange::tuner(),  //
        .title = "getCollInfo chooses only what NCCL offers",
        .text =
            "getCollInfo succeeds. Entries of the cost table that are -1 stay -1; others become numbers. With v2, the "
            "algorithm and the protocol are either both set or both unset. [S]: *nChannels is 0, which means that NCCL "
            "chooses, or at most 64.",
        .source =
            "graph/tuning.cc and enqueue.cc: topoGetAlgoInfo takes the entry with the least cost that is not negative",
        .why =
            "An error ends the collective. After a choice that was not offered, NCCL runs an algorithm that the "
            "communicator has not set up, and crashes.",
        .check = "Asks for 500 random collectives with random tables, of which half of the entries are -1.",
        .blind = "Answers for other numbers of ranks.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const std::uint64_t context = open(rank, 16, 1);
  for (int i = 0; i < repeated(500); ++i) {
    const Question question = random_question();
    const Answer answer = ask(rank, context, question);
    for (std::size_t at = 0; at < answer.costs.size(); ++at) {
      const auto place = [&] {
        return fmt::format("rank {}: getCollInfo ({}) wrote {} for algorithm {} with protocol {}", rank.name(),
                           question.text(), answer.costs[at], at / abi::kTunerProtocols, at % abi::kTunerProtocols);
      };
      expect(question.costs[at] != abi::kTunerIgnore || answer.costs[at] == abi::kTunerIgnore,
             [&] { return place() + ", which was -1: it cannot be used"; });
      expect(!std::isnan(answer.costs[at]), [&] { return place() + ", expected a number"; });
    }
    expect((answer.algorithm < 0) == (answer.protocol < 0), [&] {
      return fmt::format("rank {}: getCollInfo ({}) wrote algorithm {} and protocol {}, expected both or neither",
                         rank.name(), question.text(), answer.algorithm, answer.protocol);
    });
    should(answer.channels >= 0 && answer.channels <= abi::kMaxChannels,
           [&] { return fmt::format("getCollInfo ({}) wrote {} channels", question.text(), answer.channels); });
    if (!remarks().warnings.empty()) return;
  }
}

RULE_ON(
    TunerRule, TU_04, Must, ApiRange::tuner(),  //
    .title = "all ranks get the same answers",
    .text =
        "Ranks of a communicator that ask for the same collectives in the same order get the same answers, whatever "
        "their process, their host and their other communicators are.",
    .source = "enqueue.cc: each rank calls getCollInfo for itself",
    .why = "Ranks that run different algorithms wait for each other forever.",
    .check =
        "Two ranks on different hosts ask for 300 random collectives. One of them also opens, asks and closes another "
        "communicator in between.",
    .blind = "Answers that depend on time, load or the environment.") {
  std::vector<Rank> ranks;
  std::vector<std::uint64_t> contexts;
  for (const std::size_t number : {0u, 1u}) {
    ranks.push_back(rank(number, {.state = RankState::kLoaded, .fresh = true}));
    contexts.push_back(open(ranks.back(), 16, 1));
  }
  std::uint64_t other = 0;
  for (int i = 0; i < repeated(300); ++i) {
    if (i == 100) other = open(ranks[1], 4, 2);
    if (i > 100 && i < 200) ask(ranks[1], other, random_question());
    if (i == 200) close(ranks[1], other);
    const Question question = random_question();
    const Answer first = ask(ranks[0], contexts[0], question), second = ask(ranks[1], contexts[1], question);
    expect(first == second, [&] {
      std::string difference = fmt::format("{} and {} channels", first.channels, second.channels);
      for (std::size_t at = 0; at < std::min(first.costs.size(), second.costs.size()); ++at)
        if (first.costs[at] != second.costs[at])
          difference += fmt::format(", costs {} and {} of algorithm {} with protocol {}", first.costs[at],
                                    second.costs[at], at / abi::kTunerProtocols, at % abi::kTunerProtocols);
      return fmt::format("ranks {} and {} got different answers to question {} ({}): {}", ranks[0].name(),
                         ranks[1].name(), i, question.text(), difference);
    });
  }
}

RULE_ON(
    TunerRule, TU_05, Must, ApiRange::tuner(),  //
    .title = "threads of several communicators ask at the same time",
    .text =
        "Different threads make calls for different contexts at the same time, and get the same answers as one thread.",
    .source = "enqueue.cc: the application's threads call NCCL, one for each GPU",
    .why = "An application that drives several GPUs with threads gets wrong algorithms, or crashes.",
    .check = "Two threads ask 300 times each, each on its own context, and repeat the questions alone.",
    .blind = "Data races that change no result. A plugin built with -fsanitize=thread shows them.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  std::vector<Rank> threads = {rank.on("app0"), rank.on("app1")};
  const auto open_both = [&] { return std::vector{open(rank, 16, 1), open(rank, 16, 1)}; };
  const std::vector<std::uint64_t> contexts = open_both(), alone = open_both();
  for (int i = 0; i < repeated(300); ++i) {
    const std::vector<Question> questions = {random_question(), random_question()};
    std::vector<Started<CallOutcome>> started;
    for (std::size_t thread = 0; thread < 2; ++thread)
      started.push_back(start_ask(threads[thread], contexts[thread], questions[thread]));
    for (std::size_t thread = 0; thread < 2; ++thread) {
      const Answer together = answer_of(started[thread].get()), expected = ask(rank, alone[thread], questions[thread]);
      expect(together == expected, [&] {
        return fmt::format("rank {}: getCollInfo ({}) gave another answer while another thread asked", rank.name(),
                           questions[thread].text());
      });
    }
  }
}

RULE_ON(
    TunerRule, TU_06, Must, ApiRange::tuner(6),  //
    .title = "getChunkSize never writes 0",
    .text =
        "getChunkSize succeeds. It leaves *chunkSize as it is or writes another size, which is not 0. The function may "
        "be NULL.",
    .source = "plugin/tuner/tuner_v6.h; enqueue.cc limits the size to the buffer's size",
    .why = "NCCL divides the buffer into chunks of this size.",
    .check = "Asks for 200 random collectives, and again on another context.",
    .blind = "Sizes that make collectives slow.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const std::vector<std::uint64_t> contexts = {open(rank, 16, 1), open(rank, 16, 1)};
  if (!rank.has_function("getChunkSize")) not_applicable("getChunkSize is NULL");
  for (int i = 0; i < repeated(200); ++i) {
    const Question question = random_question();
    const std::uint64_t preset = std::uint64_t{4096} << random_between(0, 10);
    std::vector<std::byte> size(sizeof preset);
    std::memcpy(size.data(), &preset, sizeof preset);
    std::vector<std::uint64_t> sizes;
    for (const std::uint64_t context : contexts) {
      const CallOutcome outcome = rank.try_call("getChunkSize", {{"context", context},
                                                                 {"collType", question.function},
                                                                 {"nBytes", question.bytes},
                                                                 {"algo", i % abi::kTunerAlgorithms},
                                                                 {"proto", i % abi::kTunerProtocols},
                                                                 {"nChannels", 1 + i % 32},
                                                                 {"chunkSize", size}});
      require_success(outcome);
      std::memcpy(&sizes.emplace_back(), outcome.bytes("chunkSize").data(), sizeof preset);
      expect(sizes.back() != 0, [&] { return outcome.call + " wrote the chunk size 0"; });
    }
    expect(sizes[0] == sizes[1], [&] {
      return fmt::format("rank {}: getChunkSize ({}) wrote {}, and on another context {}", rank.name(), question.text(),
                         sizes[0], sizes[1]);
    });
  }
}

}  // namespace plugfest::conformance
