// plugfest replay: drives a plugin as NCCL's proxies do.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/cli/stop.h"
#include "harness/cli/traffic/shared.h"
#include "harness/traffic/replay.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxOperations = 100'000;

struct Arguments {
  std::vector<std::string> profiles;
  TeamOptions team;
  int operations = 16;
  bool calls = false;
};

// The result of one profile.
struct Result {
  std::string profile;
  // "" if it passed.
  std::string failure;
  double seconds = 0;
  std::vector<std::string> ranks;
  std::vector<wire::ReplayReport> reports;
  // The connections of each rank.
  std::vector<std::vector<wire::ReplayConnection>> connections;

  std::uint64_t sum(std::uint64_t wire::ReplayReport::*member) const {
    std::uint64_t total = 0;
    for (const wire::ReplayReport& report : reports) total += report.*member;
    return total;
  }
};

std::vector<std::string> selected(const std::vector<std::string>& asked) {
  std::vector<std::string> all;
  for (const traffic::Profile& profile : traffic::profiles()) all.emplace_back(profile.name);
  for (const std::string& name : asked)
    if (std::find(all.begin(), all.end(), name) == all.end())
      throw std::runtime_error(fmt::format("no profile \"{}\": {}", name, suggestion(name, all)));
  return asked.empty() ? all : asked;
}

// Runs one profile in ranks of its own. Errors: std::runtime_error if it could not run.
Result run_profile(const std::string& profile, const Arguments& arguments, TeamBed& bed, control::Session& session) {
  Result result;
  result.profile = profile;
  const Stopwatch watch;
  control::Lease lease = session.lease();
  try {
    const traffic::Team team(lease, bed.group());
    traffic::Plan plan = traffic::make_plan(profile, team, static_cast<std::size_t>(arguments.operations), bed.seed());
    traffic::Setup setup(team, plan);
    for (std::size_t rank = 0; rank < team.size(); ++rank) {
      result.ranks.push_back(team.name(rank));
      result.connections.push_back(setup.connections(rank));
    }
    result.reports =
        traffic::run(team, setup, plan, {.seed = bed.seed(), .trace = arguments.calls, .stop = &stop_on_signals()});
    lease.check();
    for (const std::string& problem : lease.release(true))
      result.failure += (result.failure.empty() ? "" : "\n") + problem;
  } catch (const control::Deviation& deviation) {
    result.failure = failure_text(deviation, lease);
  }
  result.seconds = watch.seconds();
  return result;
}

std::string again(const TeamBed& bed, const std::string& profile) {
  return Again().with("--profile", profile).with("--seed", fmt::to_string(bed.seed())).text();
}

void print(const Result& result, const TeamBed& bed) {
  std::FILE* const out = bed.text_stream();
  if (result.failure.empty()) {
    fmt::print(out, "  {:8} pass  {}, {:.1f} MiB in {:.2f} s\n", result.profile,
               counted(result.sum(&wire::ReplayReport::message_count) / 2, "message"),
               static_cast<double>(result.sum(&wire::ReplayReport::bytes)) / 2 / (1024 * 1024), result.seconds);
    return;
  }
  print_failure(out, result.profile, result.failure, again(bed, result.profile));
}

ordered_json to_json(const Result& result, const Arguments& arguments, const TeamBed& bed) {
  ordered_json json = {{"profile", result.profile},           {"verdict", result.failure.empty() ? "pass" : "fail"},
                       {"message", result.failure},           {"seconds", result.seconds},
                       {"rerun", again(bed, result.profile)}, {"ranks", ordered_json::array()}};
  for (std::size_t rank = 0; rank < result.reports.size(); ++rank) {
    const wire::ReplayReport& report = result.reports[rank];
    ordered_json one = {{"rank", result.ranks[rank]}, {"messages", report.message_count},
                        {"bytes", report.bytes},      {"deferrals", report.deferrals},
                        {"tests", report.tests},      {"connections", ordered_json::array()}};
    for (std::size_t i = 0; i < result.connections[rank].size(); ++i) {
      const wire::ReplayConnection& connection = result.connections[rank][i];
      one["connections"].push_back({{"peer", connection.peer},
                                    {"sends", connection.sends},
                                    {"comm", connection.comm},
                                    {"channel", connection.channel},
                                    {"tag", connection.tag},
                                    {"messages", report.messages.at(i)}});
    }
    if (arguments.calls) {
      wire::write_json(one["calls"], report.calls);
      one["calls_left_out"] = report.calls_left_out;
    }
    json["ranks"].push_back(std::move(one));
  }
  return json;
}

int replay_profiles(Arguments& arguments) {
  if (arguments.calls && arguments.team.outputs.paths().empty())
    throw std::runtime_error("--calls: the calls go into the JSON file: add --json FILE");
  const std::vector<std::string> profiles = selected(arguments.profiles);
  const Plugin plugin = find_plugin(arguments.team.plugin);
  const int api = arguments.team.version_of(plugin);
  TeamBed bed(arguments.team);
  if (const std::optional<int> exit_code = bed.enter()) return *exit_code;
  bed.build(plugin.library.empty());
  const TeamBed::Subject subject = bed.add_session(plugin, api);
  fmt::print(bed.text_stream(), "{} v{} on {}, {}, seed {}\n", subject.name, api, bed.graph().name,
             counted(bed.group().ranks.size(), "rank"), bed.seed());
  ordered_json results = ordered_json::array();
  bool failed = false;
  for (const std::string& profile : profiles) {
    if (stop_signal() != 0) break;
    try {
      const Result result = run_profile(profile, arguments, bed, *subject.session);
      print(result, bed);
      failed = failed || !result.failure.empty();
      if (bed.wants_json()) results.push_back(to_json(result, arguments, bed));
    } catch (const traffic::Unsuitable& unsuitable) {
      if (!arguments.profiles.empty()) throw;
      fmt::print(bed.text_stream(), "  {:8} skip  {}\n", profile, unsuitable.what());
    } catch (const control::Interrupted&) {
      // stop_signal() is set.
    }
  }
  ordered_json document = bed.about("plugfest replay", plugin, subject);
  document["profiles"] = std::move(results);
  bed.write_json(document);
  return exit_code_unless_stopped(failed ? 1 : 0);
}

}  // namespace

void add_replay(Command program) {
  std::string details, names;
  for (const traffic::Profile& profile : traffic::profiles()) {
    details += fmt::format("{}{} ({})", details.empty() ? "Profiles: " : "; ", profile.name, profile.summary);
    names += (names.empty() ? "" : ", ") + std::string(profile.name);
  }
  Command command =
      program.add_subcommand("replay", "Drive a plugin as NCCL's proxies do, and check every byte", details);
  auto arguments = std::make_shared<Arguments>();
  command.add_option("--profile PROFILE", arguments->profiles, names + "; repeatable; default: all");
  command.add_option("--operations N", arguments->operations,
                     "Collectives, or rounds of sends and receives, of each profile; default: 16",
                     {.at_most = kMaxOperations});
  command.add_flag(
      "--calls", arguments->calls,
      "Put every isend, irecv and completed test into the JSON file, up to about 300,000 of each rank, and count the "
      "others");
  arguments->team.add_options(command);
  command.set_body([arguments] { return replay_profiles(*arguments); });
}

}  // namespace plugfest::cli
