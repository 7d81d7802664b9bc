// plugfest nccl: runs operations of the unmodified NCCL through a plugin, without a GPU, and checks every element.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/cli/traffic/job_trace.h"
#include "harness/cli/traffic/shared.h"
#include "harness/nccl/job_ranks.h"
#include "harness/nccl/load.h"
#include "harness/nccl/log_summary.h"
#include "harness/nccl/profiler_calls.h"
#include "harness/nccl/rank_environment.h"
#include "harness/report/text.h"
#include "harness/traffic/table.h"

namespace plugfest::cli {
namespace {

constexpr std::size_t kMaxRanks = 64;
constexpr int kMaxOperations = 1'000'000;
constexpr double kMeasurementSeconds = 120;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40;

struct Arguments {
  std::string operation;
  JobOptions job;
  TableOptions table{.end = "1M"};
  std::string type = "float", redop = "sum";
  int warmups = 1;
  int root = 0;
  double timeout_scale = 1;
  std::optional<std::uint64_t> seed;
};

// The indices of `wanted` in `names`; all of them for "all". Errors: std::runtime_error that lists the names.
std::vector<std::size_t> select(const std::string& option, const std::string& wanted,
                                const std::vector<std::string>& names) {
  std::vector<std::size_t> selected;
  std::string list = "all";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (wanted == "all" || wanted == names[i]) selected.push_back(i);
    list += ", " + names[i];
  }
  if (selected.empty()) throw std::runtime_error(fmt::format("{} \"{}\": expected one of {}", option, wanted, list));
  return selected;
}

std::vector<nccl::Measurement> measurements(const Arguments& arguments, std::uint64_t seed) {
  const std::vector<std::uint64_t> sizes = arguments.table.sizes(kMaxBytes);
  std::vector<nccl::Measurement> list;
  for (const std::size_t operation : select("operation", arguments.operation, nccl::operation_names())) {
    for (const std::size_t type : select("-d", arguments.type, nccl::type_names())) {
      for (const std::size_t redop : select("-o", arguments.redop, nccl::redop_names())) {
        nccl::Measurement one{.operation = static_cast<nccl::Operation>(operation),
                              .type = static_cast<nccl::device::Type>(type),
                              .redop = static_cast<nccl::RedOp>(redop),
                              .root = arguments.root,
                              .warmups = arguments.warmups,
                              .iterations = arguments.table.operations};
        if (!nccl::reduces(one.operation) && redop != 0 && arguments.redop == "all") continue;
        for (const std::uint64_t bytes : sizes) {
          one.bytes = bytes;
          one.seed = seed + list.size();
          list.push_back(one);
        }
      }
    }
  }
  return list;
}

// Prints NCCL's choices, which it finds in the logs, as comments of the table.
void print_choices(const nccl::JobRanks& group) {
  for (int rank = 0; rank < group.size(); ++rank) {
    const nccl::LogSummary summary = nccl::summarize(group.log(rank));
    if (rank == 0) fmt::print("# NCCL {}, {}\n", summary.version, report::printable(nccl::choices_text(summary)));
    fmt::print("{}\n", report::wrapped(fmt::format("# rank {} on {}: {}", rank, group.host(rank),
                                                   report::printable(nccl::connections_text(summary))),
                                       0, 110));
  }
}

void print_logs(const nccl::JobRanks& group) {
  for (int rank = 0; rank < group.size(); ++rank)
    print_log(static_cast<std::size_t>(rank), group.host(rank), group.log(rank) + group.output(rank));
}

// The last warnings in the log of a rank, a line each, which usually tell why it failed.
std::string warnings_text(const std::string& log) {
  constexpr std::size_t kMax = 3;
  std::vector<std::string> warnings = nccl::summarize(log).warnings;
  warnings.erase(std::unique(warnings.begin(), warnings.end()), warnings.end());
  std::string text;
  for (std::size_t i = warnings.size() - std::min(warnings.size(), kMax); i < warnings.size(); ++i)
    text += fmt::format("  log:    {}\n", report::printable(shortened(warnings[i], 500)));
  return text;
}

// How the topology may have caused a failure; empty if the plugin supports the topology.
std::string hint_text(const Plugin& plugin, const topology::Graph& graph) {
  const std::string hint = is_bundled(plugin) ? "" : nccl::reach_hint(graph);
  return hint.empty() ? "" : fmt::format("  subnets: {}\n", hint);
}

traffic::TableRow row_of(const nccl::Measurement& one, const nccl::Outcome& outcome, std::size_t ranks) {
  return {.collective = nccl::operation_names()[static_cast<std::size_t>(one.operation)],
          .ranks = ranks,
          .bytes = one.bytes,
          .count = outcome.count,
          .type = nccl::type_names()[static_cast<std::size_t>(one.type)],
          .redop = nccl::reduces(one.operation)
                       ? std::string_view(nccl::redop_names()[static_cast<std::size_t>(one.redop)])
                       : "none",
          .root = nccl::has_root(one.operation) ? one.root : -1,
          .timings = {outcome.out_of_place, outcome.in_place}};
}

// "bfloat16, prod"
std::string kind_text(const nccl::Measurement& one) {
  return fmt::format("{}, {}", nccl::type_names()[static_cast<std::size_t>(one.type)],
                     nccl::redop_names()[static_cast<std::size_t>(one.redop)]);
}

// Runs a measurement. Nothing if NCCL has no algorithm for it because of --algo collnet.
std::optional<std::vector<nccl::Outcome>> outcomes_of(nccl::JobRanks& group, const nccl::Measurement& one,
                                                      bool coll_net) {
  const bool may_refuse = coll_net && one.operation == nccl::Operation::kAllReduce;
  std::vector<nccl::Outcome> outcomes;
  for (const nccl::Answer& answer : group.all(nccl::Run{"world", one}, may_refuse ? nccl::kInvalidUsage : 0)) {
    if (!answer.ok) return std::nullopt;
    outcomes.push_back(answer.outcome);
  }
  return outcomes;
}

// Prints what NCCL's calls to the profiler returned, from the lines of kProfilerCallsLine. Returns the exit code.
int check_profiler(const nccl::JobRanks& group, const std::string& profiler) {
  std::uint64_t all = 0;
  double nanoseconds = 0;
  std::string failure;
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string output = group.output(rank);
    const std::size_t at = output.rfind(nccl::kProfilerCallsLine);
    if (at == std::string::npos) continue;
    std::istringstream line(output.substr(at + std::string_view(nccl::kProfilerCallsLine).size()));
    std::uint64_t calls = 0, failed = 0;
    double duration = 0;
    std::string first;
    std::getline(line >> calls >> failed >> duration >> std::ws, first);
    all += calls;
    nanoseconds += duration;
    if (failed != 0 && failure.empty())
      failure = fmt::format("rank {}: {}, and {} of {} calls failed", rank, first, failed, calls);
  }
  if (all == 0)
    fmt::print("# profiler: not finalized: NCCL does this only if init has stored a context\n");
  else
    fmt::print("# profiler: {}, {:.2f} us each\n", counted(all, "call"), nanoseconds / 1e3 / static_cast<double>(all));
  if (failure.empty()) return 0;
  std::fflush(stdout);
  fmt::print(stderr, "plugfest: --profiler {}: {}; NCCL ignores these results\n", profiler, failure);
  return 1;
}

// Runs all measurements and prints the table. Returns the exit code.
int run_table(nccl::JobRanks& group, const std::vector<nccl::Measurement>& list, const JobOptions& job,
              const Plugin& plugin, const std::string& again) {
  group.init();
  if (const std::string fallback = fallback_of(job, plugin, group.logs()); !fallback.empty()) {
    print_fallback(fallback);
    return 1;
  }
  std::size_t wrong = 0, done = 0;
  std::set<std::string> refused;
  std::optional<nccl::Operation> operation;
  for (const nccl::Measurement& one : list) {
    if (one.operation == nccl::Operation::kAllReduce && refused.contains(kind_text(one))) continue;
    const auto outcomes = outcomes_of(group, one, job.coll_net());
    if (!outcomes) {
      refused.insert(kind_text(one));
      fmt::print("# {}: not run: NCCL has no CollNet for it\n", kind_text(one));
      continue;
    }
    ++done;
    const nccl::Outcome outcome = nccl::combined(*outcomes);
    if (operation != one.operation) {
      if (!operation) print_choices(group);
      operation = one.operation;
      fmt::print("#\n# {}\n{}", nccl::operation_names()[static_cast<std::size_t>(one.operation)],
                 traffic::table_heading({"out-of-place", "in-place"}));
    }
    fmt::print("{}", traffic::table_row(row_of(one, outcome, outcomes->size())));
    if (!outcome.first_wrong.empty()) fmt::print("# {}\n", outcome.first_wrong);
    std::fflush(stdout);
    wrong += outcome.wrong();
  }
  group.all(nccl::Destroy{"world"});
  if (const std::string algorithms = nccl::algorithms_text(nccl::summarize(group.log(0))); !algorithms.empty())
    fmt::print("{}\n", report::wrapped("# algorithms: " + report::printable(algorithms), 0, 110));
  if (done == 0) {
    std::fflush(stdout);
    fmt::print(stderr,
               "plugfest: --algo collnet: NCCL uses CollNet for none of these measurements: choose a type (-d) and an "
               "operator (-o) that the plugin reduces, and at most 8 ranks for each host\n");
    return 1;
  }
  if (wrong == 0) {
    fmt::print("# {}, every element right\n", counted(done, "measurement"));
    return job.profiler.empty() ? 0 : check_profiler(group, job.profiler);
  }
  print_logs(group);
  fmt::print("# {} wrong; again:  {}\n", counted(wrong, "element"), again);
  return 1;
}

// Errors: std::runtime_error if NCCL has the algorithm for none of the operations.
void check_algorithm(const Arguments& arguments) {
  const std::string& algorithm = arguments.job.algorithm;
  if (algorithm.empty() || algorithm == "ring" || arguments.operation == "allreduce" || arguments.operation == "all")
    return;
  throw std::runtime_error(
      fmt::format("--algo {}: NCCL supports it only for allreduce: choose allreduce or all", algorithm));
}

int run(const Arguments& arguments) {
  if (arguments.operation.empty())
    throw std::runtime_error(fmt::format("OPERATION is missing; see {} nccl --help", program_as_typed()));
  if (arguments.warmups < 0 || arguments.warmups > kMaxOperations)
    throw std::runtime_error(fmt::format("-w {}: expected 0 to {}", arguments.warmups, kMaxOperations));
  const std::uint64_t seed = chosen_seed(arguments.seed);
  const std::vector<nccl::Measurement> list = measurements(arguments, seed);
  check_algorithm(arguments);
  const Plugin plugin = arguments.job.find();
  bed::RunBed run_bed = bed_of_job(arguments.job, plugin);
  const std::size_t hosts = run_bed.graph().hosts.size();
  const std::size_t ranks =
      arguments.job.ranks == 0 ? std::min(hosts, kMaxRanks) : static_cast<std::size_t>(arguments.job.ranks);
  if (ranks < 2) throw std::runtime_error(fmt::format("--ranks {}: NCCL uses no network with one rank", ranks));
  if (arguments.root < 0 || arguments.root >= static_cast<int>(ranks))
    throw std::runtime_error(fmt::format("-r {}: expected 0 to {}, the last rank", arguments.root, ranks - 1));
  const std::string logs = make_folder("--logs", arguments.job.logs);
  JobTrace trace(arguments.job);
  control::Environment environment = arguments.job.environment();
  if (!arguments.job.profiler.empty()) nccl::set(environment, nccl::kProfilerCallsVariable, "1");

  if (const std::optional<int> exit_code = run_bed.enter()) return explain_end(*exit_code);
  stop_on_signals();
  bed::TestBed& bed = run_bed.build(true);
  trace.start(environment);
  const std::string again = Again().with("--seed", fmt::to_string(seed)).text();
  nccl::JobRanks group(bed, {.plugin = plugin.load,
                             .ranks = static_cast<int>(ranks),
                             .seconds = kMeasurementSeconds * arguments.timeout_scale,
                             .stop_fd = stop_fd(),
                             .split_memory = arguments.job.split_memory(),
                             .environment = environment});
  fmt::print("# {} on {} of {}, no GPU; seed {}\n", counted(ranks, "rank"), counted(std::min(hosts, ranks), "host"),
             run_bed.graph().name, seed);
  int exit_code = 1;
  try {
    exit_code = run_table(group, list, arguments.job, plugin, again);
  } catch (const nccl::Stopped&) {
    exit_code = exit_code_unless_stopped(1);
  } catch (const nccl::JobFailed& failed) {
    std::fflush(stdout);
    const int rank = failed.rank();
    print_log(static_cast<std::size_t>(rank), group.host(rank), group.log(rank) + group.output(rank));
    fmt::print(stderr, "plugfest: {}\n{}{}  again:  {}\n", report::printable(failed.what(), "\t\n"),
               warnings_text(group.log(rank)), hint_text(plugin, run_bed.graph()), again);
  }
  for (int rank = 0; rank < group.size(); ++rank)
    write_log(logs, static_cast<std::size_t>(rank), group.log(rank) + group.output(rank));
  trace.write(ranks, run_bed.graph());
  return exit_code;
}

}  // namespace

void add_nccl(Command program) {
  Command command =
      program.add_subcommand("nccl", "Run NCCL's operations through a plugin, without a GPU, and check every element",
                             "Runs the unmodified libnccl.so.2, 2.28.9, with its kernels on the CPU. The table has "
                             "the columns of nccl-tests; its times are times of the emulation.");
  add_nccl_exec(command);
  auto arguments = std::make_shared<Arguments>();
  command.add_option("OPERATION", arguments->operation,
                     "allreduce, allgather, reducescatter, broadcast, reduce, alltoall, sendrecv, or all");
  arguments->job.add_options(command);
  arguments->table.add_options(command, kMaxOperations);
  command.add_option("-w N", arguments->warmups, "Warm-up operations before each measurement; default: 1");
  command.add_option("-d TYPE", arguments->type,
                     "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2, or "
                     "all; default: float");
  command.add_option("-o REDOP", arguments->redop, "sum, prod, max, min, avg, or all; default: sum");
  command.add_option("-r RANK", arguments->root, "Root of broadcast and reduce; default: 0");
  command.add_option("--seed N", arguments->seed, "Repeat the data of an earlier run");
  add_timeout_option(command, arguments->timeout_scale, fmt::format("a measurement, {:g} s", kMeasurementSeconds));
  command.set_body([arguments] { return run(*arguments); });
}

}  // namespace plugfest::cli
