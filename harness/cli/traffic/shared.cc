#include "harness/cli/traffic/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/text.h"
#include "fabric/topology/quantity.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/nccl/job_ranks.h"
#include "harness/nccl/log_summary.h"
#include "harness/nccl/rank_environment.h"
#include "harness/plugin/inspect.h"
#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

constexpr int kMaxRanks = 1024;
constexpr std::size_t kMaxNameBytes = 40;
constexpr std::size_t kMaxSizes = 1000;
// Lines of a rank's log that a failure shows.
constexpr std::size_t kShownLogLines = 30;

// Errors: std::runtime_error.
std::uint64_t parse_bytes(const std::string& option, const std::string& text, std::uint64_t max) {
  try {
    return topology::parse_size(text, max);
  } catch (const std::runtime_error&) {
    throw std::runtime_error(fmt::format("{} \"{}\": expected a size such as 8, 64K or 128M", option, text));
  }
}

}  // namespace

void TableOptions::add_options(Command command, double max_operations) {
  command.add_option("-b,--begin SIZE", begin, "Smallest size in bytes, such as 8 or 64K; default: " + begin);
  command.add_option("-e,--end SIZE", end, "Largest size; default: " + end);
  command.add_option("-f,--factor X", factor, "Factor between a size and the next one; default: 2", {.at_most = 1e6});
  command.add_option("-n,--operations N", operations, "Number of operations of each size; default: 5",
                     {.at_most = max_operations});
}

std::vector<std::uint64_t> TableOptions::sizes(std::uint64_t max) const {
  const std::uint64_t first = parse_bytes("--begin", begin, max), last = parse_bytes("--end", end, max);
  if (first > last) throw std::runtime_error(fmt::format("--begin {}: is above --end {}", begin, end));
  if (!(factor > 1)) throw std::runtime_error("--factor: expected a number above 1");
  std::vector<std::uint64_t> all;
  for (auto size = static_cast<double>(first); size <= static_cast<double>(last);
       size = std::max(size * factor, size + 1)) {
    all.push_back(static_cast<std::uint64_t>(std::llround(size)));
    if (all.size() > kMaxSizes) {
      throw std::runtime_error(fmt::format("--factor {}: there are more than {} sizes from --begin {} to --end {}",
                                           factor, kMaxSizes, begin, end));
    }
  }
  return all;
}

void TeamOptions::add_options(Command command) {
  add_plugin_option(command, plugin);
  command.add_option("--api VERSION", api, "Version of the net interface: v6 to v12; default: the newest");
  add_bed_options(command, bed);
  command.add_option("--ranks N", ranks, "Use the first N hosts; default: all", {.at_most = kMaxRanks});
  command.add_option("--seed N", seed, "Repeat the random choices of an earlier run");
  add_timeout_option(command, bed.timeout_scale, "calls and of transfers without progress, 10 s");
  outputs.add_options(command, false);
}

int TeamOptions::version_of(const Plugin& named) const {
  require_one_api(api);
  return choose_apis(named, api).front();
}

TeamBed::TeamBed(TeamOptions& options) : options_(options), bed_(options.bed), seed_(chosen_seed(options.seed)) {
  const std::size_t hosts = graph().hosts.size();
  if (static_cast<std::size_t>(options.ranks) > hosts || options.ranks == 1) {
    throw std::runtime_error(
        fmt::format("--ranks {}: expected 2 to {}, the hosts of {}", options.ranks, hosts, graph().name));
  }
  options.outputs.open();
}

std::optional<int> TeamBed::enter() {
  if (const std::optional<bed::GuestResult> result = bed_.nic().run_in_guest(options_.outputs.paths())) {
    options_.outputs.write_contents(result->files);
    return result->exit_code;
  }
  if (const std::optional<int> exit_code = bed_.enter()) return explain_end(*exit_code);
  return std::nullopt;
}

void TeamBed::build(bool needs_out_of_band) {
  stop_on_signals();
  if (bed_.build(needs_out_of_band).hosts().ranks.size() >= 2) return;
  throw std::runtime_error(fmt::format("--nic {}: all ranks run on one host, and this command needs two", nic()));
}

TeamBed::Subject TeamBed::add_session(const Plugin& plugin, int api) {
  control::Limits limits;
  limits.call_seconds = bed_.call_seconds();
  limits.stop_fd = stop_fd();
  bed::TestBed& bed = bed_.bed();
  control::Subject subject = bed.subject(plugin.load, api);
  Subject result;
  result.api = api;
  {
    control::Session session(bed.launcher(), subject, limits);
    bed_.find_devices(subject, session);
    control::Lease lease = session.lease();
    result.name = shortened(
        lease.rank(bed.hosts().ranks.front(), {.state = control::RankState::kLoaded}).library().name, kMaxNameBytes);
  }
  result.session = std::make_unique<control::Session>(bed.launcher(), std::move(subject), limits);
  return result;
}

bed::RankGroup TeamBed::group() {
  bed::RankGroup group = bed_.bed().hosts();
  if (options_.ranks == 0) return group;
  const auto count = static_cast<std::size_t>(options_.ranks);
  group.ranks.resize(count);
  group.interfaces.resize(count);
  for (auto& interfaces : group.interfaces) interfaces.resize(count);
  return group;
}

nlohmann::ordered_json TeamBed::about(const std::string& tool, const Plugin& plugin, const Subject& subject) {
  return {{"tool", tool},       {"plugin", plugin.load},    {"name", subject.name},
          {"api", subject.api}, {"topology", graph().name}, {"nic", nic()},
          {"seed", seed()}};
}

void TeamBed::write_json(const nlohmann::ordered_json& document) {
  for (const std::string& path : options_.outputs.paths())
    options_.outputs.write_contents({{path, wire::json_text(document)}});
}

std::string failure_text(const control::Deviation& deviation, const control::Lease& lease) {
  std::string text = deviation.what();
  const std::vector<std::string>* stack = nullptr;
  if (const auto* hung = dynamic_cast<const control::Hung*>(&deviation)) stack = &hung->stack();
  if (const auto* crashed = dynamic_cast<const control::Crashed*>(&deviation)) stack = &crashed->stack();
  for (std::size_t i = 0; stack != nullptr && i < stack->size(); ++i) text += "\n  " + (*stack)[i];
  for (const control::RankEvidence& rank : lease.evidence().ranks) {
    if (rank.name != deviation.rank()) continue;
    constexpr std::size_t kLogLines = 20;
    const std::size_t first = rank.log.size() - std::min(rank.log.size(), kLogLines);
    if (!rank.log.empty()) text += fmt::format("\nlog of rank {}:", rank.name);
    for (std::size_t i = first; i < rank.log.size(); ++i) text += "\n  " + rank.log[i];
  }
  return text;
}

void print_failure(std::FILE* out, const std::string& subject, const std::string& failure, const std::string& rerun) {
  std::string text;
  for (const char c : report::printable(shortened_lines(failure, 1000, 100), "\t\n"))
    text += c == '\n' ? std::string("\n  ") : std::string(1, c);
  fmt::print(out, "FAIL {}\n  {}\n  again: {}\n", subject, text, rerun);
  std::fflush(out);
}

void JobOptions::add_options(Command command) {
  add_plugin_option(command, plugin);
  add_topology_option(command, topology, "triangle, or star:3 with another plugin than the bundled one");
  command.add_option("--algo NAME", algorithm,
                     "NCCL's algorithm: ring; tree, for allreduce; collnet, for allreduce in the switches of the "
                     "topology, by default through libnccl-net-sharp.so on star:3. Default: NCCL chooses",
                     {.one_of = {"ring", "tree", "collnet"}});
  command.add_option("--ranks N", ranks, "Number of ranks; default: one in each host", {.at_most = 64});
  command.add_option("--device-memory shared|split", device_memory,
                     "split: an access to device memory by the CPU, such as a plugin's, ends the rank with a line that "
                     "names the function; default: shared",
                     {.one_of = {"shared", "split"}});
  command.add_option("--trace FILE", trace,
                     "Write NCCL's calls, operations and transfers of all ranks to FILE, as a timeline for "
                     "ui.perfetto.dev and `trace explain`",
                     {.again = false});
  command.add_option("--profiler LIB", profiler, "Let NCCL load this profiler plugin in each rank",
                     {.excludes = "--trace"});
  command.add_flag("--packets", packets, "Add the messages of all NICs to --trace, from their captured packets",
                   {.again = false});
  command.add_option("--logs FOLDER", logs, "Write NCCL's log of each rank to FOLDER/rank-N.log", {.again = false});
}

control::Environment JobOptions::environment() const {
  control::Environment environment = nccl::algorithm_environment(algorithm);
  if (profiler.empty()) return environment;
  if (!std::filesystem::exists(profiler))
    throw std::runtime_error(
        fmt::format("--profiler {}: no such file: name the library of a profiler plugin", profiler));
  nccl::set(environment, "NCCL_PROFILER_PLUGIN", std::filesystem::absolute(profiler).string());
  return environment;
}

Plugin JobOptions::find() const {
  if (!coll_net()) return find_plugin(plugin);
  Plugin found = find_plugin(plugin.empty() ? bed::library_folder() + "/libnccl-net-sharp.so" : plugin);
  if (found.library.empty())
    throw std::runtime_error(fmt::format("--algo collnet: {} has no CollNet: leave out --plugin", found.load));
  if (!found.others.contains(plugin::InterfaceKind::kCollNet))
    plugin::choose_api(plugin::inspect(found.library), 0, plugin::InterfaceKind::kCollNet);  // throws
  return found;
}

bed::RunBed bed_of_job(const JobOptions& options, const Plugin& plugin) {
  const std::string topology = !options.topology.empty() ? options.topology
                               : options.coll_net()      ? "star:3"
                                                         : default_job_topology(plugin);
  bed::RunBed bed(bed::FabricChoice::built(topology), options.coll_net() ? "--algo collnet" : "");
  nccl::check_reach(plugin.load, bed.graph());
  return bed;
}

std::string fallback_of(const JobOptions& job, const Plugin& plugin, const std::vector<std::string>& logs) {
  if (const std::string net = plugin.library.empty() ? "" : nccl::net_fallback(logs); !net.empty()) return net;
  const std::string coll_net = job.coll_net() ? nccl::coll_net_fallback(logs) : "";
  if (!coll_net.empty()) return "--algo collnet: " + coll_net;
  const std::string profiler = job.profiler.empty() ? "" : nccl::profiler_fallback(logs);
  return profiler.empty() ? "" : fmt::format("--profiler {}: {}", job.profiler, profiler);
}

void print_fallback(const std::string& reason) {
  std::fflush(stdout);
  fmt::print(stderr, "plugfest: {}; --logs FOLDER keeps NCCL's logs\n", report::printable(shortened(reason, 500)));
}

void print_log(std::size_t rank, const std::string& host, const std::string& log) {
  std::string text = log;
  std::size_t at = text.size();
  for (std::size_t lines = 0; at > 0 && lines <= kShownLogLines; ++lines) {
    const std::size_t before = text.rfind('\n', at - 1);
    at = before == std::string::npos ? 0 : before;
  }
  if (at != 0) text = "…" + text.substr(at);
  fmt::print(stderr, "log of rank {} on {}:\n{}\n", rank, host,
             report::printable(shortened_lines(text, 500, 100), "\t\n"));
}

void write_log(const std::string& folder, std::size_t rank, const std::string& log) {
  if (folder.empty()) return;
  report::OutputFile file((std::filesystem::path(folder) / fmt::format("rank-{}.log", rank)).string());
  file.write(log);
}

}  // namespace plugfest::cli
