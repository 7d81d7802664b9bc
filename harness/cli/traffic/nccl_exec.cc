// plugfest nccl exec: runs a user's program, linked with NCCL and the CUDA runtime, as the ranks of a job.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "fabric/netns/command.h"
#include "fabric/system/text.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/cli/traffic/job_trace.h"
#include "harness/cli/traffic/shared.h"
#include "harness/nccl/job_ranks.h"
#include "harness/nccl/log_summary.h"
#include "harness/nccl/program_job.h"
#include "harness/plugin/elf_file.h"
#include "harness/plugin/nccl.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::vector<std::string> command;
  JobOptions job;
  double timeout = 300;
  bool gpu = false;
  bool device_api = false;
  std::string nvlink_domain = "host";
  int ranks_per_host = 1;
  bool weak = false;
  std::optional<std::uint64_t> seed;

  nccl::DeviceApi api() const {
    if (nvlink_domain == "all") return nccl::DeviceApi::kDomain;
    return device_api || has_kernels() ? nccl::DeviceApi::kHosts : nccl::DeviceApi::kNone;
  }

 private:
  // Whether `plugfest nvcc` has linked the program.
  bool has_kernels() const {
    if (gpu || job.split_memory() || command.front().find('/') == std::string::npos) return false;
    try {
      const plugin::ElfFile program(command.front(), plugin::ElfFile::Kinds::kProgramsToo);
      return std::find(program.needed().begin(), program.needed().end(), "libplugfest-cuda.so") !=
             program.needed().end();
    } catch (const plugin::ElfError&) {
      return false;  // a script
    }
  }
};

// The path of libnccl.so.2 for LD_PRELOAD. Errors: std::runtime_error.
std::string nccl_to_preload() {
  const std::string absolute = std::filesystem::absolute(plugin::require_nccl("nccl")).string();
  if (absolute.find_first_of(" :;") != std::string::npos)
    throw std::runtime_error(
        fmt::format("{}: LD_PRELOAD cannot express a path with a space, : or ;: copy the library elsewhere", absolute));
  return absolute;
}

void print_line(int rank, bool error, std::string_view line) {
  fmt::print(error ? stderr : stdout, "[{}] {}\n", rank, line);
  if (!error) std::fflush(stdout);
}

// Prints NCCL's choices from the log of the first rank that has one.
void print_summary(const nccl::ProgramResult& result) {
  for (const nccl::ProgramRank& rank : result.ranks) {
    const nccl::LogSummary summary = nccl::summarize(rank.log);
    if (summary.version.empty() || summary.network.empty()) continue;
    const std::string algorithms = nccl::algorithms_text(summary);
    fmt::print(stderr, "plugfest: NCCL {}, {}{}\n", summary.version, nccl::choices_text(summary),
               algorithms.empty() ? "" : "; " + algorithms);
    return;
  }
  fmt::print(stderr, "plugfest: no rank has created a communicator, or NCCL wrote no log\n");
}

// Errors: std::runtime_error.
void check_exclusions(const Arguments& arguments, nccl::DeviceApi api) {
  if (api != nccl::DeviceApi::kNone) {
    const char* const option = arguments.gpu                  ? "--gpu"
                               : arguments.job.split_memory() ? "--device-memory split"
                                                              : nullptr;
    if (option != nullptr)
      throw std::runtime_error(fmt::format("{} excludes {}: leave out one of them",
                                           arguments.device_api ? "--device-api" : "--nvlink-domain all", option));
  }
  if (arguments.gpu && (arguments.weak || arguments.seed))
    throw std::runtime_error(
        fmt::format("{} excludes --gpu: leave out one of them", arguments.weak ? "--weak" : "--seed"));
  if (arguments.job.ranks != 0 && arguments.ranks_per_host != 1)
    throw std::runtime_error("--ranks excludes --ranks-per-host: leave out one of them");
}

// Prints why ranks have failed: the log of each rank if none of them explains its failure itself.
void print_failures(const nccl::ProgramResult& result) {
  const bool explained = std::any_of(result.ranks.begin(), result.ranks.end(),
                                     [](const nccl::ProgramRank& rank) { return rank.explained; });
  for (std::size_t i = 0; i < result.ranks.size(); ++i)
    if (result.exit_code == 1 && !explained && !result.ranks[i].log.empty())
      print_log(i, result.ranks[i].host, result.ranks[i].log);
  for (std::size_t i = 0; i < result.ranks.size(); ++i) {
    const nccl::ProgramRank& rank = result.ranks[i];
    if (!rank.failure.empty()) fmt::print(stderr, "plugfest: {}\n", rank.failure);
    // A kernel also hangs if NCCL has refused its request.
    if (const auto warnings = nccl::summarize(rank.log).warnings; rank.explained && !warnings.empty())
      fmt::print(stderr, "plugfest: rank {} on {}, NCCL: {}\n", i, rank.host, warnings.front());
  }
}

// Returns the exit code of a job that was not stopped, or 1 if NCCL has not used the plugin. Prints the reasons.
int job_exit_code(const nccl::ProgramResult& result, const JobOptions& job, const Plugin& plugin,
                  const topology::Graph& graph) {
  std::vector<std::string> logs;
  for (const nccl::ProgramRank& rank : result.ranks) logs.push_back(rank.log);
  // A program without a communicator takes no network, and if it fails, it has other reasons.
  if (std::all_of(logs.begin(), logs.end(), [](const std::string& log) { return log.empty(); }))
    return result.exit_code;
  const std::string hint = is_bundled(plugin) ? "" : nccl::reach_hint(graph);
  if (result.exit_code == 1 && !hint.empty()) fmt::print(stderr, "plugfest: {}\n", hint);
  if (result.exit_code == 2) return 2;
  const std::string fallback = fallback_of(job, plugin, logs);
  if (fallback.empty()) return result.exit_code;
  print_fallback(fallback);
  return 1;
}

nccl::ProgramResult run(bed::TestBed& bed, const nccl::ProgramOptions& options) {
  try {
    return nccl::run_program(bed, options);
  } catch (const netns::CannotExecute& error) {
    throw std::runtime_error(error.what());
  }
}

int execute(const Arguments& arguments) {
  const nccl::DeviceApi api = arguments.api();
  check_exclusions(arguments, api);
  std::optional<std::uint64_t> seed = arguments.seed;
  if (arguments.weak && !seed) seed = chosen_seed(seed);
  const Plugin plugin = arguments.job.find();
  bed::RunBed run_bed = bed_of_job(arguments.job, plugin);
  const std::string logs = make_folder("--logs", arguments.job.logs);
  JobTrace trace(arguments.job);
  nccl::ProgramOptions options{.argv = arguments.command,
                               .plugin = plugin.load,
                               .nccl = arguments.gpu ? "" : nccl_to_preload(),
                               .ranks = arguments.job.ranks,
                               .ranks_per_host = arguments.ranks_per_host,
                               .seconds = arguments.timeout,
                               .split_memory = arguments.job.split_memory(),
                               .device_api = api,
                               .weak_kernels = arguments.weak,
                               .kernel_seed = seed,
                               .gpu = arguments.gpu,
                               .environment = arguments.job.environment(),
                               .line = print_line};

  if (const std::optional<int> exit_code = run_bed.enter()) return explain_end(*exit_code);
  stop_on_signals();
  options.stop_fd = stop_fd();
  bed::TestBed& bed = run_bed.build(true);
  trace.start(options.environment);
  const nccl::ProgramResult result = run(bed, options);
  for (std::size_t i = 0; i < result.ranks.size(); ++i) write_log(logs, i, result.ranks[i].log);
  trace.write(result.ranks.size(), run_bed.graph());
  if (result.stopped) return exit_code_unless_stopped(1);
  print_summary(result);
  print_failures(result);
  if (seed && !arguments.seed) fmt::print(stderr, "plugfest: --seed {} repeats the order of the threads\n", *seed);
  return job_exit_code(result, arguments.job, plugin, run_bed.graph());
}

}  // namespace

void add_nccl_exec(Command nccl) {
  Command command = nccl.add_subcommand(
      "exec", "Run a program that is linked with NCCL and the CUDA runtime as ranks of a job, without a GPU",
      "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as from torchrun, "
      "and OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK and _LOCAL_SIZE. Each line of output begins with the rank. Exit "
      "code: 0 if all ranks end with 0; 1 if one does not; 2 if one calls a function that the emulation does not "
      "implement.");
  auto arguments = std::make_shared<Arguments>();
  arguments->job.add_options(command);
  command.add_option("--timeout X", arguments->timeout, "Kill ranks that still run after X seconds; default: 300",
                     {.at_most = 1e6});
  command.add_flag("--gpu", arguments->gpu, "Use this machine's GPUs, CUDA and NCCL instead of stand-ins");
  command.add_flag("--device-api", arguments->device_api,
                   "Let NCCL offer symmetric memory, multicast and GIN, for programs that use its device API");
  command.add_option("--nvlink-domain host|all", arguments->nvlink_domain,
                     "Ranks that load from and store to each other's memory: the ranks of a host, or all, as in a rack "
                     "with NVLink; all implies --device-api; default: host",
                     {.one_of = {"host", "all"}});
  command.add_option("--ranks-per-host N", arguments->ranks_per_host, "Ranks in each host; default: 1",
                     {.at_most = 64});
  command.add_flag("--weak", arguments->weak,
                   "Make stores of kernels visible to other ranks late and in any order, as a GPU may, and run threads "
                   "in a random order");
  command.add_option("--seed N", arguments->seed,
                     "Seed of the order of kernel threads and of the delays of --weak; default: threads run in turn, "
                     "with --weak in a random order that cannot be repeated");
  command.add_option("PROGRAM", arguments->command, "The program and its arguments, after --", {.required = true});
  command.set_body([arguments] { return execute(*arguments); });
}

}  // namespace plugfest::cli
