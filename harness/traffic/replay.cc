#include "harness/traffic/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "harness/control/call.h"
#include "harness/control/rank_process.h"
#include "harness/traffic/moves.h"
#include "harness/wire/channel.h"

namespace plugfest::traffic {

namespace {

constexpr std::uint64_t kKiB = 1024;

// Random plans on one team.
class Planner {
 public:
  Planner(const Team& team, std::uint64_t seed) : team_(team), random_(seed), plan_(team.size(), kChannels) {}

  void add_rings() {
    const std::vector<std::size_t> order = team_.ring_order();
    if (order.empty()) throw Unsuitable("the hosts do not reach each other in a ring: choose another topology");
    plan_.add_rings(order, Directions::kBoth);
  }
  void add_tree() {
    const std::vector<std::size_t> parents = team_.tree();
    if (parents.empty()) throw Unsuitable("not all hosts are connected: choose another topology");
    // In addition to one of NCCL's trees, one whose ranks have more children.
    plan_.add_trees({parents, team_.complete() ? double_binary_tree(team_.size()).back() : parents});
  }
  void add_pairs(std::uint32_t gpus, bool with_ll) {
    gpus_ = gpus;
    plan_.add_pairs(gpus, with_ll, [this](std::size_t from, std::size_t to) { return team_.reaches(from, to); });
  }

  void ring_simple() {
    switch (draw(4)) {
      case 0:
        return plan_.all_gather(kCollectives, ProxyProtocol::kSimple, size(4096 * kKiB));
      case 1:
        return plan_.broadcast(kCollectives, ProxyProtocol::kSimple, size(4096 * kKiB));
      default:
        return plan_.all_reduce(kCollectives, ProxyProtocol::kSimple, size(8192 * kKiB));
    }
  }
  void ring_lines() {
    const ProxyProtocol protocol = !first_ && draw(3) == 0 ? ProxyProtocol::kLl128 : ProxyProtocol::kLl;
    const std::uint64_t bytes = size(protocol == ProxyProtocol::kLl ? 768 * kKiB : 4096 * kKiB);
    if (draw(4) == 0) return plan_.reduce_scatter(kCollectives, protocol, bytes);
    plan_.all_reduce(kCollectives, protocol, bytes);
  }
  void tree() {
    constexpr std::array kProtocols = {ProxyProtocol::kSimple, ProxyProtocol::kSimple, ProxyProtocol::kLl};
    const ProxyProtocol protocol = kProtocols[draw(kProtocols.size())];
    plan_.tree_all_reduce(kCollectives, protocol, size(protocol == ProxyProtocol::kLl ? 512 * kKiB : 6144 * kKiB));
  }
  // A round of sends and receives. Every GPU pair has a size of its own; some send nothing.
  void pairs(bool lines) {
    std::map<std::pair<std::size_t, std::size_t>, Plan::Message> messages;
    const std::uint64_t max_bytes = lines ? 96 * kKiB : first_ ? 256 * kKiB : 1536 * kKiB;
    for (std::size_t from = 0; from < team_.size() * gpus_; ++from) {
      for (std::size_t to = 0; to < team_.size() * gpus_; ++to) {
        if (from == to || draw(8) == 0) continue;
        messages[{from, to}].bytes = draw(6) == 0 ? 0 : size(draw(2) == 0 ? max_bytes : 16 * kKiB);
      }
    }
    plan_.exchange(kPairs, lines ? ProxyProtocol::kLl : ProxyProtocol::kSimple, "send/recv",
                   [&messages](std::size_t from, std::size_t to) -> const Plan::Message* {
                     const auto found = messages.find({from, to});
                     return found == messages.end() ? nullptr : &found->second;
                   });
  }
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  void end_round() { first_ = false; }
  std::size_t ranks() const { return team_.size(); }
  Plan take() { return std::move(plan_); }

 private:
  static constexpr std::uint32_t kChannels = 2;
  static constexpr std::size_t kCollectives = 0;
  // The first of the streams of the GPUs.
  static constexpr std::size_t kPairs = 1;

  // A size of whole floats for each rank: the largest one for the first collective, so that every slot is used; after
  // that small ones are as frequent as large ones.
  std::uint64_t size(std::uint64_t max_bytes) {
    const std::uint64_t unit = sizeof(float) * team_.size();
    if (first_) return max_bytes / unit * unit;
    std::uint64_t limit = max_bytes;
    for (std::uint64_t halvings = draw(6); halvings > 0; --halvings) limit /= 4;
    return (1 + draw(std::max<std::uint64_t>(limit / unit, 1))) * unit;
  }

  const Team& team_;
  std::mt19937_64 random_;
  Plan plan_;
  std::uint32_t gpus_ = 1;
  bool first_ = true;
};

// GPUs of a rank, at most `max`, and fewer for many ranks.
std::uint32_t gpus(const Planner& planner, std::size_t max) {
  constexpr std::size_t kMaxOfAll = 24;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(kMaxOfAll / planner.ranks(), 1, max));
}

struct Entry {
  Profile profile;
  void (*connect)(Planner& planner);
  void (*add)(Planner& planner);
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {{"ring-ar", "rings, SIMPLE: messages of 1 MiB in slices of two steps"},
       [](Planner& planner) { planner.add_rings(); },
       [](Planner& planner) { planner.ring_simple(); }},
      {{"ring-ll", "rings, LL and LL128: the GPU polls flags, completion of receives is optional"},
       [](Planner& planner) { planner.add_rings(); },
       [](Planner& planner) { planner.ring_lines(); }},
      {{"tree", "two trees, one with up to three children: several connections of a rank in both directions"},
       [](Planner& planner) { planner.add_tree(); },
       [](Planner& planner) { planner.tree(); }},
      {{"p2p-a2a", "sends and receives between all pairs of GPUs: shared comms and pools, groups, empty messages"},
       [](Planner& planner) { planner.add_pairs(gpus(planner, 2), false); },
       [](Planner& planner) { planner.pairs(false); }},
      {{"pxn", "many GPUs of a rank send through one comm: groups of many tags, which shrink"},
       [](Planner& planner) { planner.add_pairs(gpus(planner, 6), false); },
       [](Planner& planner) { planner.pairs(false); }},
      {{"mixed", "all of them at the same time"},
       [](Planner& planner) {
         planner.add_rings();
         planner.add_tree();
         planner.add_pairs(gpus(planner, 3), true);
       },
       [](Planner& planner) {
         switch (planner.draw(4)) {
           case 0:
             planner.ring_simple();
             break;
           case 1:
             planner.ring_lines();
             break;
           default:
             planner.tree();
         }
         planner.pairs(planner.draw(3) == 0);
       }},
  };
  return all;
}

}  // namespace

const std::vector<Profile>& profiles() {
  static const std::vector<Profile> all = [] {
    std::vector<Profile> list;
    for (const Entry& entry : entries()) list.push_back(entry.profile);
    return list;
  }();
  return all;
}

Plan make_plan(std::string_view name, const Team& team, std::size_t operations, std::uint64_t seed) {
  for (const Entry& entry : entries()) {
    if (entry.profile.name != name) continue;
    Planner planner(team, seed);
    entry.connect(planner);
    for (std::size_t i = 0; i < operations; ++i) {
      entry.add(planner);
      planner.end_round();
    }
    return planner.take();
  }
  throw std::runtime_error(fmt::format("no profile \"{}\"", name));
}

namespace {

// Polls between two looks at deadlines, which are slow.
constexpr int kPollsUntilDeadline = 200;
constexpr std::chrono::microseconds kPause{500};

struct ReplayOutcome : control::Outcome {
  wire::ReplayReport report;
  std::string broken;  // as in `report`
};

struct NoiseOutcome : control::Outcome {
  std::string broken;
};

// Numbers replays, so that a rank knows which one its registrations belong to.
std::uint64_t next_run() {
  static std::atomic<std::uint64_t> runs = 0;
  return ++runs;
}

wire::Replay request(const Team& team, const Setup& setup, Plan& plan, const RunOptions& options, std::size_t rank,
                     std::uint64_t run) {
  const auto& process = team.rank(rank).rank_process();
  wire::Replay request;
  request.run = run;
  request.seed = options.seed;
  request.connections = setup.connections(rank);
  request.streams = plan.take_streams(rank);
  const auto translate = [&](std::uint32_t& connection) { connection = setup.local(rank, connection); };
  for (wire::ReplayStream& stream : request.streams) {
    for (wire::ReplayKernel& kernel : stream.kernels) {
      for (wire::ReplayOperation& operation : kernel.operations)
        for (wire::ReplaySub& sub : operation.subs) translate(sub.connection);
      for (wire::ReplayProgram& program : kernel.programs) {
        for (wire::ReplayMove& move : program.moves) {
          for (std::uint32_t& connection : move.receives) translate(connection);
          for (std::uint32_t& connection : move.sends) translate(connection);
        }
      }
    }
  }
  request.patterns = options.patterns;
  if (!options.patterns) {
    request.input = options.input.at(rank).address;
    request.output = options.output.at(rank).address;
  }
  request.limit_posted_size = options.seed % 2 == 0;
  request.most_buffers = team.max_buffers();
  request.pauses = options.noise;
  request.trace = options.trace;
  request.context = process->ledger.contexts.empty() ? 0 : process->ledger.contexts.front();
  request.timeout_ns = process->timeout_ns();
  return request;
}

// Errors: std::runtime_error if a rank would refuse the request because of its size.
void require_sendable(const Team& team, const wire::Replay& request, std::size_t rank) {
  constexpr double kMiB = 1024 * kKiB;
  const std::size_t size = wire::encode(request).size();
  if (size <= wire::kMaxBody) return;
  throw std::runtime_error(fmt::format(
      "the plan of rank {} has {:.1f} MiB, the limit is {:.0f} MiB: choose fewer operations or smaller sizes",
      team.name(rank), static_cast<double>(size) / kMiB, wire::kMaxBody / kMiB));
}

control::Started<ReplayOutcome> start(const Team& team, const wire::Replay& request, std::size_t rank) {
  return control::start<ReplayOutcome>(
      team.rank(rank).rank_process(), "", request, fmt::format("replay of {} connections", request.connections.size()),
      [](ReplayOutcome& outcome, const wire::ReplayAnswer& answer, control::RankProcess& process) {
        outcome.report = answer.report;
        outcome.broken = answer.report.broken;
        if (!answer.report.broken.empty()) process.mark_unfit();
        return answer.report.broken.empty() ? fmt::format("{} messages", answer.report.message_count)
                                            : answer.report.broken;
      });
}

// Each thread registers on the comms that it has made.
std::vector<control::Started<NoiseOutcome>> start_noise(const Team& team, const Setup& setup, std::uint64_t seed,
                                                        std::size_t rank, std::uint64_t run) {
  const auto& process = team.rank(rank).rank_process();
  std::vector<control::Started<NoiseOutcome>> started;
  seed += rank;
  for (const auto& [thread, comms] : setup.comms(rank)) {
    started.push_back(control::start<NoiseOutcome>(
        process, thread, wire::ReplayRegistrations{run, seed, {comms.begin(), comms.end()}, process->timeout_ns()},
        "registrations during transfers",
        [](NoiseOutcome& outcome, const wire::ReplayRegistrationsAnswer& answer, control::RankProcess& process) {
          outcome.broken = answer.broken;
          if (!answer.broken.empty()) process.mark_unfit();
          return answer.broken.empty() ? fmt::format("{} registrations", answer.registrations) : answer.broken;
        }));
    seed += team.size();
  }
  return started;
}

// The replay of one plan in all ranks.
class Running {
 public:
  Running(const Team& team, const RunOptions& options) : team_(team), options_(options) {}

  void add(control::Started<ReplayOutcome> replay, std::vector<control::Started<NoiseOutcome>> noise) {
    replays_.push_back(std::move(replay));
    noise_.push_back(std::move(noise));
    outcomes_.emplace_back();
  }

  std::vector<wire::ReplayReport> wait() {
    std::size_t left = replays_.size();
    for (int polls = 1; left > 0; ++polls) {
      if (options_.stop != nullptr && options_.stop->load()) throw control::Interrupted();
      bool any = false;
      for (std::size_t rank = 0; rank < replays_.size(); ++rank) {
        if (outcomes_[rank]) continue;
        const bool late = polls % kPollsUntilDeadline == 0 && replays_[rank].overdue();
        if (!replays_[rank].ready() && !late) continue;
        take(rank);
        --left;
        any = true;
      }
      if (!any) std::this_thread::sleep_for(kPause);
    }
    // A rank that fails makes others stall, so all ranks are checked before a stall is reported.
    for (std::size_t rank = 0; rank < outcomes_.size(); ++rank) report_if_broken(rank);
    std::vector<wire::ReplayReport> reports;
    for (std::optional<ReplayOutcome>& outcome : outcomes_) reports.push_back(std::move(outcome->report));
    return reports;
  }

 private:
  void take(std::size_t rank) {
    outcomes_[rank] = replays_[rank].get();
    if (!outcomes_[rank]->report.stalled) report_if_broken(rank);
    for (control::Started<NoiseOutcome>& started : noise_[rank]) {
      const NoiseOutcome noise = started.get();
      control::require_success(noise);
      if (!noise.broken.empty())
        throw control::Deviation(noise.rank, fmt::format("rank {}: {}", noise.rank, noise.broken));
    }
  }

  void report_if_broken(std::size_t rank) const {
    const wire::ReplayReport& report = outcomes_[rank]->report;
    if (report.broken.empty()) return;
    std::string what = fmt::format("rank {}: {}", team_.name(rank), report.broken);
    if (report.stalled) {
      for (std::size_t other = 0; other < outcomes_.size(); ++other) {
        const bool too = other != rank && outcomes_[other] && outcomes_[other]->report.stalled;
        if (too) what += fmt::format("\nrank {}: {}", team_.name(other), outcomes_[other]->report.broken);
      }
    }
    if (!report.last_calls.empty()) what += fmt::format("\nlast calls of rank {}:", team_.name(rank));
    for (const std::string& call : report.last_calls) what += "\n  " + call;
    if (report.stalled) throw control::Stalled(team_.name(rank), what);
    throw control::Deviation(team_.name(rank), what);
  }

  const Team& team_;
  const RunOptions& options_;
  std::vector<control::Started<ReplayOutcome>> replays_;
  std::vector<std::vector<control::Started<NoiseOutcome>>> noise_;  ///< by rank
  std::vector<std::optional<ReplayOutcome>> outcomes_;
};

}  // namespace

std::vector<wire::ReplayReport> run(const Team& team, Setup& setup, Plan& plan, const RunOptions& options) {
  Running running(team, options);
  const std::uint64_t run = next_run();
  std::vector<wire::Replay> requests;
  for (std::size_t rank = 0; rank < team.size(); ++rank) {
    requests.push_back(request(team, setup, plan, options, rank, run));
    require_sendable(team, requests.back(), rank);
  }
  for (std::size_t rank = 0; rank < team.size(); ++rank) {
    std::vector<control::Started<NoiseOutcome>> noise;
    if (options.noise && options.registrations) noise = start_noise(team, setup, options.seed, rank, run);
    running.add(start(team, requests[rank], rank), std::move(noise));
  }
  std::vector<wire::ReplayReport> reports = running.wait();
  for (std::size_t rank = 0; rank < team.size(); ++rank) setup.advance(rank, reports[rank]);
  return reports;
}

}  // namespace plugfest::traffic
