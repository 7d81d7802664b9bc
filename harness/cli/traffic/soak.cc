// plugfest soak: repeats messages, connections and registrations, and reports what grows.
#include "harness/traffic/soak.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/cli/stop.h"
#include "harness/cli/traffic/shared.h"

namespace plugfest::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kMaxMinutes = 7 * 24 * 60;
// With fewer rounds the standard error is not meaningful.
constexpr std::uint64_t kMinRounds = 5;
constexpr double kProgressSeconds = 10;

struct Arguments {
  TeamOptions team;
  double minutes = 10;
};

// The endpoints of the first two hosts that reach each other.
std::pair<control::Endpoint, control::Endpoint> endpoints(control::Lease& lease, const bed::RankGroup& group) {
  for (std::size_t from = 0; from < group.ranks.size(); ++from) {
    for (std::size_t to = 0; to < group.ranks.size(); ++to) {
      const std::string &there = group.interfaces[from][to], &back = group.interfaces[to][from];
      if (from == to || there.empty() || back.empty()) continue;
      return {lease.endpoint(group.ranks[from], there), lease.endpoint(group.ranks[to], back)};
    }
  }
  throw std::runtime_error("no two hosts of the topology reach each other");
}

// The findings of one soak.
struct Result {
  std::uint64_t rounds = 0;
  double seconds = 0;
  // "" if no call and no message failed.
  std::string failure;
  std::vector<std::string> leaks;
  // Growth for each unit of work, by rank, resource and kind of work.
  ordered_json growth = ordered_json::array();
  // The memory, descriptors and threads of the processes after each round.
  ordered_json series = ordered_json::array();
  std::string table;
};

ordered_json sample(const traffic::GrowthMeter& meter, double seconds) {
  ordered_json ranks = ordered_json::array();
  for (std::size_t rank = 0; rank < meter.ranks(); ++rank) {
    ordered_json held = {{"rank", meter.name(rank)}};
    for (const traffic::Resource resource : traffic::kResources)
      held[std::string(key_of(resource))] = meter.now(rank, resource);
    ranks.push_back(std::move(held));
  }
  return {{"seconds", seconds}, {"ranks", std::move(ranks)}};
}

void add_growth(const traffic::Soak& soak, Result& result) {
  result.table = fmt::format("  {:42}", "growth for each");
  for (const traffic::SoakWork& work : traffic::Soak::work()) result.table += fmt::format("{:>20}", work.unit);
  const traffic::GrowthMeter& meter = soak.meter();
  for (std::size_t rank = 0; rank < meter.ranks(); ++rank) {
    for (const traffic::Resource resource : traffic::kResources) {
      result.table += fmt::format("\n  {:42}", fmt::format("{}: {}", meter.name(rank), name_of(resource)));
      for (std::size_t kind = 0; kind < traffic::Soak::work().size(); ++kind) {
        const traffic::SoakWork& work = traffic::Soak::work()[kind];
        const traffic::Steps& steps = meter.steps(rank, resource, kind);
        result.table += fmt::format("{:>20}", growth_text(steps, work));
        result.growth.push_back({{"rank", meter.name(rank)},
                                 {"resource", key_of(resource)},
                                 {"unit", work.unit},
                                 {"mean", steps.mean() / work.units},
                                 {"standard_error", steps.error() / work.units}});
      }
    }
  }
}

Result soak(const Arguments& arguments, TeamBed& bed, control::Session& session) {
  Result result;
  const Stopwatch watch;
  Stopwatch since_progress;
  control::Lease lease = session.lease();
  try {
    const auto [sender, receiver] = endpoints(lease, bed.group());
    traffic::Soak soak(sender, receiver, lease.stall_limit(), bed.seed());
    while (soak.rounds() < kMinRounds || watch.seconds() < 60 * arguments.minutes) {
      soak.round();
      result.series.push_back(sample(soak.meter(), watch.seconds()));
      if (since_progress.seconds() >= kProgressSeconds) {
        since_progress = {};
        fmt::print(stderr, "plugfest: {}, about {:.0f} s left\n", counted(soak.rounds(), "round"),
                   std::max(0.0, 60 * arguments.minutes - watch.seconds()));
      }
      result.rounds = soak.rounds();
      if (stop_signal() != 0) break;
    }
    result.leaks = soak.leaks();
    add_growth(soak, result);
    lease.check();
  } catch (const control::Interrupted&) {
    // stop_signal() is set.
  } catch (const control::Deviation& deviation) {
    result.failure = failure_text(deviation, lease);
  }
  result.seconds = watch.seconds();
  return result;
}

void print(const Result& result, const TeamBed& bed, const std::string& subject) {
  std::FILE* const out = bed.text_stream();
  std::string did = counted(result.rounds, "round");
  for (const traffic::SoakWork& work : traffic::Soak::work())
    did += ", " + counted(result.rounds * static_cast<std::uint64_t>(work.units), std::string(work.unit));
  fmt::print(out, "  {} in {:.0f} s\n{}\n", did, result.seconds, result.table);
  const std::string rerun = Again().with("--seed", fmt::to_string(bed.seed())).text();
  if (!result.failure.empty()) print_failure(out, subject, result.failure, rerun);
  if (!result.leaks.empty()) print_failure(out, subject, fmt::to_string(fmt::join(result.leaks, "\n")), rerun);
  if (result.failure.empty() && result.leaks.empty() && stop_signal() == 0)
    fmt::print(out, "PASS nothing grows by more than three standard errors\n");
}

int soak_plugin(Arguments& arguments) {
  const Plugin plugin = find_plugin(arguments.team.plugin);
  const int api = arguments.team.version_of(plugin);
  TeamBed bed(arguments.team);
  if (const std::optional<int> exit_code = bed.enter()) return *exit_code;
  bed.build(plugin.library.empty());
  const TeamBed::Subject subject = bed.add_session(plugin, api);
  fmt::print(bed.text_stream(), "{} v{} on {}, seed {}\n", subject.name, api, bed.graph().name, bed.seed());
  std::fflush(bed.text_stream());
  const Result result = soak(arguments, bed, *subject.session);
  print(result, bed, subject.name);
  const bool failed = !result.failure.empty() || !result.leaks.empty();
  ordered_json document = bed.about("plugfest soak", plugin, subject);
  document.update({{"seconds", result.seconds},
                   {"rounds", result.rounds},
                   {"verdict", failed ? "fail" : "pass"},
                   {"message", result.failure},
                   {"leaks", result.leaks},
                   {"growth", result.growth},
                   {"series", result.series}});
  bed.write_json(document);
  return exit_code_unless_stopped(failed ? 1 : 0);
}

}  // namespace

void add_soak(Command program) {
  Command command = program.add_subcommand(
      "soak", "Measure what each message, connection and registration leaves behind",
      "Two ranks repeat rounds of messages, connections and registrations. After each part of a round, plugfest "
      "measures the memory, descriptors and threads of both.");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("--minutes N", arguments->minutes, "Duration; at least five rounds; default: 10",
                     {.at_most = kMaxMinutes});
  arguments->team.add_options(command);
  command.set_body([arguments] { return soak_plugin(*arguments); });
}

}  // namespace plugfest::cli
