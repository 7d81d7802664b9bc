#include "harness/traffic/run.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>

#include "harness/control/call.h"
#include "harness/control/process/rank_process.h"

namespace plugfest::traffic {

namespace {

/// Polls between two looks at deadlines, which are slow.
constexpr int kPollsUntilDeadline = 200;
constexpr std::chrono::microseconds kPause{500};

struct Outcome : control::Outcome {
  rank::ReplayReport report;
  std::string broken;  ///< as in `report`
};

struct NoiseOutcome : control::Outcome {
  std::string broken;
};

/// Numbers replays, so that a rank knows which one its registrations belong to.
std::uint64_t next_run() {
  static std::atomic<std::uint64_t> runs = 0;
  return ++runs;
}

rank::Replay request(const Team& team, const Setup& setup, Plan& plan, const RunOptions& options, std::size_t rank,
                     std::uint64_t run) {
  const auto& process = team.rank(rank).remote();
  rank::Replay request;
  request.run = run;
  request.seed = options.seed;
  request.connections = setup.connections(rank);
  request.streams = plan.take_streams(rank);
  const auto translate = [&](std::uint32_t& connection) { connection = setup.local(rank, connection); };
  for (rank::ReplayStream& stream : request.streams) {
    for (rank::ReplayKernel& kernel : stream.kernels) {
      for (rank::ReplayOperation& operation : kernel.operations) {
        for (rank::ReplaySub& sub : operation.subs) translate(sub.connection);
      }
      for (rank::ReplayProgram& program : kernel.programs) {
        for (rank::ReplayMove& move : program.moves) {
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
  request.most_buffers = team.most_buffers();
  request.pauses = options.noise;
  request.trace = options.trace;
  request.context = process->ledger.contexts.empty() ? 0 : process->ledger.contexts.front();
  request.timeout_ns = process->timeout_ns();
  return request;
}

control::Started<Outcome> start(const Team& team, const rank::Replay& request, std::size_t rank) {
  return control::start<Outcome>(
      team.rank(rank).remote(), "", request, fmt::format("replay of {} connections", request.connections.size()),
      [](Outcome& outcome, const rank::ReplayAnswer& answer, control::RankProcess& process) {
        outcome.report = answer.report;
        outcome.broken = answer.report.broken;
        if (!answer.report.broken.empty()) process.mark_unfit();
        return answer.report.broken.empty() ? fmt::format("{} messages", answer.report.message_count)
                                            : answer.report.broken;
      });
}

control::Started<NoiseOutcome> start_noise(const Team& team, const Setup& setup, std::uint64_t seed, std::size_t rank,
                                           std::uint64_t run) {
  const auto& process = team.rank(rank).remote();
  return control::start<NoiseOutcome>(
      process, "", rank::ReplayRegistrations{run, seed + rank, setup.comms(rank), process->timeout_ns()},
      "registrations during transfers",
      [](NoiseOutcome& outcome, const rank::ReplayRegistrationsAnswer& answer, control::RankProcess& process) {
        outcome.broken = answer.broken;
        if (!answer.broken.empty()) process.mark_unfit();
        return answer.broken.empty() ? fmt::format("{} registrations", answer.registrations) : answer.broken;
      });
}

/// The replay of one plan in all ranks.
class Running {
 public:
  Running(const Team& team, const RunOptions& options) : team_(team), options_(options) {}

  void add(control::Started<Outcome> replay, std::optional<control::Started<NoiseOutcome>> noise) {
    replays_.push_back(std::move(replay));
    noise_.push_back(std::move(noise));
    outcomes_.emplace_back();
  }

  std::vector<rank::ReplayReport> wait() {
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
    // A rank that fails makes others stall, so that all of them are looked at before a stall is reported.
    for (std::size_t rank = 0; rank < outcomes_.size(); ++rank) report_if_broken(rank);
    std::vector<rank::ReplayReport> reports;
    for (std::optional<Outcome>& outcome : outcomes_) reports.push_back(std::move(outcome->report));
    return reports;
  }

 private:
  void take(std::size_t rank) {
    outcomes_[rank] = replays_[rank].get();
    if (!outcomes_[rank]->report.stalled) report_if_broken(rank);
    if (!noise_[rank]) return;
    const NoiseOutcome noise = noise_[rank]->get();
    control::require_success(noise);
    if (!noise.broken.empty()) {
      throw control::Deviation(noise.rank, fmt::format("rank {}: {}", noise.rank, noise.broken));
    }
  }

  void report_if_broken(std::size_t rank) const {
    const rank::ReplayReport& report = outcomes_[rank]->report;
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
  std::vector<control::Started<Outcome>> replays_;
  std::vector<std::optional<control::Started<NoiseOutcome>>> noise_;
  std::vector<std::optional<Outcome>> outcomes_;
};

}  // namespace

std::vector<rank::ReplayReport> run(const Team& team, Setup& setup, Plan& plan, const RunOptions& options) {
  Running running(team, options);
  const std::uint64_t run = next_run();
  std::vector<rank::Replay> requests;
  for (std::size_t rank = 0; rank < team.size(); ++rank) {
    requests.push_back(request(team, setup, plan, options, rank, run));
  }
  for (std::size_t rank = 0; rank < team.size(); ++rank) {
    std::optional<control::Started<NoiseOutcome>> noise;
    if (options.noise) noise = start_noise(team, setup, options.seed, rank, run);
    running.add(start(team, requests[rank], rank), std::move(noise));
  }
  std::vector<rank::ReplayReport> reports = running.wait();
  for (std::size_t rank = 0; rank < team.size(); ++rank) setup.advance(rank, reports[rank]);
  return reports;
}

}  // namespace plugfest::traffic
