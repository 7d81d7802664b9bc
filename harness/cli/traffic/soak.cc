// plugfest soak: repeats messages, connections and registrations, and reports what grows.
#include "harness/traffic/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/cli/stop.h"
#include "harness/cli/traffic/shared.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

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

report::SoakRecord soak(const Arguments& arguments, TeamBed& bed, control::Session& session) {
  report::SoakRecord record;
  const Stopwatch watch;
  Stopwatch since_progress;
  control::Lease lease = session.lease();
  const auto go_on = [&] {
    if (since_progress.seconds() >= kProgressSeconds) {
      since_progress = {};
      fmt::print(stderr, "plugfest: {}, about {:.0f} s left\n", counted(record.rounds, "round"),
                 std::max(0.0, 60 * arguments.minutes - watch.seconds()));
    }
    return stop_signal() == 0;
  };
  try {
    const auto [sender, receiver] = endpoints(lease, bed.group());
    traffic::soak(sender, receiver, lease.stall_limit(), bed.seed(), 60 * arguments.minutes, go_on, record);
    lease.check();
  } catch (const control::Interrupted&) {
    // stop_signal() is set.
  } catch (const control::Deviation& deviation) {
    record.message = failure_text(deviation, lease);
  }
  record.seconds = watch.seconds();
  return record;
}

// The growth for each unit of work: a column for each, a row for each rank and resource.
std::string growth_table(const report::SoakRecord& record) {
  std::string table = fmt::format("  {:42}", "growth for each");
  for (const traffic::SoakWork& work : traffic::Soak::work()) table += fmt::format("{:>20}", work.unit);
  std::size_t rows = 0;
  for (const report::SoakRecord::Growth& growth : record.growth) {
    if (growth.unit == traffic::Soak::work().front().unit) {
      const traffic::Resource resource = traffic::kResources[rows++ % traffic::kResources.size()];
      table += fmt::format("\n  {:42}", fmt::format("{}: {}", growth.rank, name_of(resource)));
    }
    table += fmt::format("{:>20}", traffic::growth_text(growth.mean, growth.standard_error));
  }
  return record.growth.empty() ? "" : table + "\n";
}

void print(const report::SoakRecord& record, const TeamBed& bed, const std::string& subject) {
  std::FILE* const out = bed.text_stream();
  std::string did = counted(record.rounds, "round");
  for (const traffic::SoakWork& work : traffic::Soak::work())
    did += ", " + counted(record.rounds * static_cast<std::uint64_t>(work.units), std::string(work.unit));
  fmt::print(out, "  {} in {:.0f} s\n{}", did, record.seconds, growth_table(record));
  const std::string rerun = Again().with("--seed", fmt::to_string(bed.seed())).text();
  if (!record.message.empty()) print_failure(out, subject, record.message, rerun);
  if (!record.leaks.empty()) print_failure(out, subject, fmt::to_string(fmt::join(record.leaks, "\n")), rerun);
  if (!record.failed() && stop_signal() == 0)
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
  const report::SoakRecord record = soak(arguments, bed, *subject.session);
  print(record, bed, subject.name);
  nlohmann::ordered_json document = bed.about("plugfest soak", plugin, subject), found;
  document["verdict"] = record.failed() ? "fail" : "pass";
  wire::write_json(found, record);
  document.update(found);
  bed.write_json(document);
  return exit_code_unless_stopped(record.failed() ? 1 : 0);
}

}  // namespace

void add_soak(Command program) {
  Command command = program.add_subcommand(
      "soak", "Measure what each message, connection and registration leaves behind",
      "Two ranks repeat rounds of messages, connections and registrations. After each part of a round, plugfest "
      "measures the memory, descriptors and threads of both.");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("--minutes N", arguments->minutes, "Run for N minutes, but at least five rounds; default: 10",
                     {.at_most = traffic::kMaxSoakMinutes});
  arguments->team.add_options(command);
  command.set_body([arguments] { return soak_plugin(*arguments); });
}

}  // namespace plugfest::cli
