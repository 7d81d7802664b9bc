#include "conformance/model/player.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "conformance/model/model.h"
#include "conformance/model/one_sided.h"
#include "conformance/model/schedule.h"
#include "fabric/system/clock.h"
#include "harness/control/call.h"
#include "harness/control/workload.h"

namespace plugfest::model {

namespace {

constexpr unsigned kRuns = 3;
constexpr std::uint64_t kMaxLengthened = 2'000'000;

}  // namespace

Schedule lengthened(Schedule schedule, std::uint64_t messages) {
  const std::uint64_t now = count_messages(schedule);
  if (now == 0) return schedule;
  const std::uint64_t factor = (std::min(messages, kMaxLengthened) + now - 1) / now;
  for (Step& step : schedule.steps) {
    auto* const transfer = std::get_if<Transfer>(&step);
    if (transfer != nullptr) transfer->repeat *= static_cast<std::uint32_t>(std::max<std::uint64_t>(factor, 1));
  }
  return schedule;
}

std::optional<Played> Examiner::run(const Stage& stage, const Schedule& schedule) {
  if (stop_ || std::chrono::steady_clock::now() > end_) return std::nullopt;
  ++tried_;
  stage.session.end_idle();
  try {
    return play(stage, schedule, stop_);
  } catch (const control::Interrupted&) {
    return std::nullopt;
  }
}

std::optional<std::uint64_t> Examiner::fails(const Schedule& schedule, unsigned attempts) {
  for (; attempts > 0; --attempts) {
    const std::optional<Played> played = run(quick_, schedule);
    if (played && played->deviation) return played->messages;
  }
  return std::nullopt;
}

Finding Examiner::examine(const Schedule& schedule, const Deviation& deviation, std::uint64_t before) {
  Finding finding{.schedule = schedule, .deviation = deviation};
  end_ = std::chrono::steady_clock::now() + limit_;
  unsigned attempts = 1;
  // The number of messages that a rare bug needs, such as one in 100000; otherwise 0.
  std::uint64_t needed = 0;
  if (!fails(schedule, 1)) {
    if (fails(schedule, kRuns))
      attempts = kRuns;
    else
      needed = 2 * (before + count_messages(schedule));
  }
  const auto shown = [&](const Schedule& candidate) { return needed == 0 ? candidate : lengthened(candidate, needed); };
  const auto shows = [&](const Schedule& candidate) {
    const std::optional<std::uint64_t> messages = fails(shown(candidate), attempts);
    if (messages) needed = std::min(needed, 2 * std::max<std::uint64_t>(*messages, 1));
    return messages.has_value();
  };
  if (needed != 0 && !shows(schedule)) return finding;
  const Schedule small = shown(shrink(schedule, shows));
  // The outcome in the deciding session counts, regardless of the duration of the search.
  end_ = std::chrono::steady_clock::time_point::max();
  const auto start = std::chrono::steady_clock::now();
  while (finding.runs < kRuns && (finding.runs == 0 || std::chrono::steady_clock::now() < start + limit_ / 4)) {
    std::optional<Played> played = run(deciding_, small);
    if (!played) break;
    ++finding.runs;
    if (!played->deviation) continue;
    ++finding.failures;
    finding.messages = played->messages;
    finding.deviation = std::move(*played->deviation);
  }
  if (finding.failures > 0) finding.schedule = small;
  finding.tried = tried_;
  return finding;
}

namespace {

using control::ProgramOutcome;

// After this time without an answer, the next rank is polled with a call that detects hangs.
constexpr std::int64_t kActionTimeoutNs = 2'000'000'000;
constexpr long kIntervalNs = 100'000;

// Stops and continues the processes of ranks.
class FreezeTimes {
 public:
  FreezeTimes(const std::vector<Freeze>& freezes, std::vector<control::Endpoint>& endpoints)
      : endpoints_(endpoints), frozen_(endpoints.size(), 0) {
    for (const Freeze& freeze : freezes) {
      changes_.emplace(std::int64_t{freeze.at_us} * 1000, std::pair(freeze.rank, +1));
      changes_.emplace((std::int64_t{freeze.at_us} + freeze.us) * 1000, std::pair(freeze.rank, -1));
    }
  }
  // Makes the changes that are due. Freezes of one rank may overlap.
  void apply() {
    while (!changes_.empty() && changes_.begin()->first <= now_ns() - start_ns_) make_next();
  }
  // Ends all freezes and cancels those that have not begun.
  void end() {
    for (std::size_t rank = 0; rank < frozen_.size(); ++rank)
      if (std::exchange(frozen_[rank], 0) > 0) endpoints_[rank].rank.thaw();
    changes_.clear();
  }

 private:
  void make_next() {
    const auto [rank, change] = changes_.begin()->second;
    changes_.erase(changes_.begin());
    const int before = frozen_[rank];
    frozen_[rank] += change;
    if (before == 0 && change > 0) endpoints_[rank].rank.freeze();
    if (before == 1 && change < 0) endpoints_[rank].rank.thaw();
  }

  std::vector<control::Endpoint>& endpoints_;
  // Freezes in effect, by rank.
  std::vector<int> frozen_;
  std::multimap<std::int64_t, std::pair<unsigned, int>> changes_;
  const std::int64_t start_ns_ = now_ns();
};

class Running {
 public:
  Running(std::vector<control::Started<ProgramOutcome>> programs, FreezeTimes& freezes, const std::atomic<bool>& stop)
      : running_(std::move(programs)), freezes_(freezes), stop_(stop) {}

  // Waits for all programs, or until one has found a deviation. Errors: as Started::get; Interrupted.
  std::vector<ProgramOutcome> wait() {
    std::vector<ProgramOutcome> outcomes;
    std::int64_t last_ns = now_ns();
    while (!running_.empty()) {
      if (stop_) throw control::Interrupted();
      freezes_.apply();
      bool one_broke = false;
      // Several ranks may fail at the same time: all are polled, so that the first failure can be identified.
      for (auto action = running_.begin(); action != running_.end();) {
        // get() also detects a call that hangs.
        if (!action->ready() && now_ns() - last_ns < kActionTimeoutNs) {
          ++action;
          continue;
        }
        outcomes.push_back(action->get());
        one_broke |= !outcomes.back().broken.empty() && !outcomes.back().stalled;
        last_ns = now_ns();
        action = running_.erase(action);
      }
      if (one_broke) break;
      const timespec interval{0, kIntervalNs};
      nanosleep(&interval, nullptr);
    }
    return outcomes;
  }

 private:
  std::vector<control::Started<ProgramOutcome>> running_;
  FreezeTimes& freezes_;
  const std::atomic<bool>& stop_;
};

// The outcome that is the cause: ranks whose peer has stopped then stall too.
const ProgramOutcome* first_broken(const std::vector<ProgramOutcome>& outcomes) {
  const ProgramOutcome* first = nullptr;
  for (const ProgramOutcome& outcome : outcomes) {
    if (outcome.broken.empty()) continue;
    const auto order = [](const ProgramOutcome& one) { return std::pair(one.stalled, one.end_ns); };
    if (first == nullptr || order(outcome) < order(*first)) first = &outcome;
  }
  return first;
}

void play_on(control::Lease& lease, const Schedule& schedule, const std::atomic<bool>& stop, Played& played) {
  Plan plan = model::plan(schedule);
  std::vector<control::Endpoint> endpoints;
  unsigned max_receives = ~0u;
  for (std::size_t i = 0; i < schedule.ranks.size(); ++i) {
    control::Endpoint& endpoint = endpoints.emplace_back(lease.endpoint(schedule.ranks[i]));
    plan.programs[i].device = endpoint.device.index;
    max_receives = std::min(max_receives, max_receives_of(endpoint));
  }
  if (widest_group(schedule) > max_receives) {
    throw std::runtime_error(fmt::format("the schedule has a group of {} messages, and the plugin's maxRecvs is {}",
                                         widest_group(schedule), max_receives));
  }
  for (const CommPlan& connection : plan.connections) {
    control::Endpoint& to = endpoints[connection.to];
    const control::Listener listener = to.rank.listen(to.device);
    wire::ProgramComm& receiver = plan.programs[connection.to].comms[connection.to_comm];
    wire::ProgramComm& sender = plan.programs[connection.from].comms[connection.from_comm];
    receiver.listener = listener.value();
    sender.handle = listener.handle().bytes;
    receiver.in_order = sender.in_order = max_receives == 1;
  }
  std::vector<control::Started<ProgramOutcome>> programs;
  for (std::size_t i = 0; i < endpoints.size(); ++i)
    programs.push_back(start_program(endpoints[i].rank, std::move(plan.programs[i])));
  FreezeTimes freezes(plan.freezes, endpoints);
  const std::vector<ProgramOutcome> outcomes = Running(std::move(programs), freezes, stop).wait();
  freezes.end();
  for (const ProgramOutcome& outcome : outcomes) {
    played.messages += outcome.messages;
    played.bytes += outcome.bytes;
  }
  if (const ProgramOutcome* broken = first_broken(outcomes))
    played.deviation = {fmt::format("rank {}: {}", broken->rank, broken->broken), broken->step, {}};
  for (const ProgramOutcome& outcome : outcomes)
    if (!played.deviation) require_success(outcome);
  if (!played.deviation) lease.check();
}

void play_one_sided_on(control::Lease& lease, const Schedule& schedule, Played& played) {
  std::vector<control::Rank> ranks;
  for (const std::string& name : schedule.ranks) ranks.push_back(lease.rank(name));
  const bool gets = std::any_of(schedule.steps.begin(), schedule.steps.end(), [](const Step& step) {
    const auto* const one_sided = std::get_if<OneSided>(&step);
    return one_sided != nullptr && one_sided->get;
  });
  if (gets && !ranks.front().has_function("iget"))
    throw std::runtime_error("the schedule has gets, and the plugin has no iget");
  control::OneSidedGroup group(ranks, {.contexts = kContexts});
  play_operations(group, schedule, played);
  if (!played.deviation) lease.check();
}

}  // namespace

unsigned max_receives_of(control::Endpoint& endpoint) {
  return static_cast<unsigned>(std::max(1, endpoint.rank.properties(endpoint.device).max_recvs));
}

faults::Script packet_faults(const Schedule& schedule, const topology::Graph& graph) {
  if (schedule.faults.empty()) return {};
  faults::Script script = faults::read_script(schedule.faults, graph, "faults");
  for (const faults::Entry& entry : script.entries)
    if (entry.fault.kind != faults::Kind::kPackets || entry.at || entry.on)
      throw std::runtime_error(fmt::format("faults \"{}\": expected faults of packets", schedule.faults));
  script.assign_seeds(schedule.seed);
  return script;
}

Played play(const Stage& stage, const Schedule& schedule, const std::atomic<bool>& stop) {
  Played played;
  if (!schedule.faults.empty() && stage.injector == nullptr)
    throw std::runtime_error("the schedule has faults of packets, which only the user-space NIC supports");
  std::vector<std::unique_ptr<faults::ActiveFault>> faults;
  if (stage.injector != nullptr)
    for (const faults::Entry& entry : packet_faults(schedule, stage.injector->graph()).entries)
      faults.push_back(std::make_unique<faults::ActiveFault>(*stage.injector, entry.fault));
  control::Lease lease = stage.session.lease();
  try {
    if (schedule.interface.empty())
      play_on(lease, schedule, stop, played);
    else
      play_one_sided_on(lease, schedule, played);
  } catch (const control::Deviation& deviation) {
    played.deviation = {deviation.what(), std::nullopt, {}};
  }
  if (played.deviation) played.deviation->evidence = lease.evidence();
  // With faults the comms are still open.
  lease.release(!played.deviation && schedule.faults.empty());
  return played;
}

}  // namespace plugfest::model
