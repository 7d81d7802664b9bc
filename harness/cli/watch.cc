// run --watch: tests again whenever the library's file changes.
#include "harness/cli/run.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "fabric/netns/supervision.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "harness/report/comparison.h"
#include "harness/report/formats.h"

namespace plugfest::cli {
namespace {

// A build has ended if the library has not changed for this long.
constexpr timespec kQuiet{.tv_sec = 0, .tv_nsec = 200'000'000};

// Blocks the signals that end the command, and SIGCHLD, while the object exists.
class Signals {
 public:
  Signals() {
    sigemptyset(&signals_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      sigaddset(&signals_, number);
      std::signal(number, SIG_DFL);  // the kernel discards ignored signals, even blocked ones
    }
    sigprocmask(SIG_BLOCK, &signals_, &before_);
  }
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Whether a signal has ended the command.
  bool ended() const { return ended_; }

  // Waits until the process has exited and returns its exit code.
  int await(pid_t round) {
    for (int status = 0;;) {
      if (waitpid(round, &status, WNOHANG) == round) return exit_code_of(status);
      wait(nullptr, round);
    }
  }
  // Returns when the file has changed and then stayed the same for a moment, or after a signal. Asks for the file's
  // version from time to time, since a link, its target and their folders may all be replaced.
  void await_change(const std::string& file, FileVersion& version) {
    for (bool has_changed = false; !ended_;) {
      wait(&kQuiet);
      if (version.changed(file))
        has_changed = true;
      else if (has_changed && version.exists())
        return;
    }
  }

 private:
  // Waits for a signal. Forwards to `round` one that a process sent to this process alone; a terminal sends its signals
  // to both.
  void wait(const timespec* limit, pid_t round = -1) {
    siginfo_t info{};
    const int number = sigtimedwait(&signals_, &info, limit);
    if (number < 0 || number == SIGCHLD) return;
    ended_ = true;
    if (round > 0 && info.si_code <= 0) kill(round, number);
  }

  sigset_t signals_ = {};
  sigset_t before_ = {};
  bool ended_ = false;
};

// The path of the library to watch. Errors: std::runtime_error.
std::string library_of(const RunArguments& arguments) {
  const std::pair<bool, const char*> contradictions[] = {
      {arguments.list, "--list"},
      {!arguments.wrap.empty(), "--wrap"},
      {arguments.last_failed, "--last-failed"},
      {arguments.bed.nic == "vm", "--nic vm"},
  };
  for (const auto& [is_given, option] : contradictions)
    if (is_given) throw std::runtime_error(fmt::format("--watch excludes {}: leave out one of them", option));
  if (arguments.outputs.text_stream() != stdout)
    throw std::runtime_error("--watch: each round writes its results: name a file instead of standard output");
  const std::string library = find_plugin(arguments.plugin, false).library;
  if (library.empty())
    throw std::runtime_error(
        fmt::format("--watch: {} is a part of NCCL: name a library that changes", arguments.plugin));
  return library;
}

// The path of the file for the results of a round.
std::string results_path(const RunArguments& arguments) { return fmt::format("/dev/fd/{}", arguments.round_results); }

}  // namespace

std::optional<int> watch(RunArguments& arguments) {
  const std::string library = library_of(arguments);
  arguments.seed = chosen_seed(arguments.seed);
  FileVersion version;
  version.changed(library);
  Signals signals;
  std::optional<report::Document> before;
  for (;;) {
    Descriptor results = make_memory_file("results");
    arguments.round_results = results.get();
    std::fflush(stdout);
    const pid_t own_process = getpid();
    const pid_t round = netns::fork_or_throw();
    if (round == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != own_process) _exit(kKilledBySignal + SIGKILL);
      static const Descriptor own = std::move(results);
      return std::nullopt;  // also restores the signal mask
    }
    const int exit_code = signals.await(round);
    std::optional<report::Document> after;
    if (const std::string text = read_file(results_path(arguments)); !text.empty()) after = report::read_document(text);
    if (!after && !before) return exit_code;
    if (before && after && after->stop_signal == 0)
      fmt::print("{}", report::describe(report::compare(*before, *after)));
    if (after) before = std::move(after);
    if (!signals.ended()) fmt::print("\nWaiting until {} changes; Ctrl-C ends\n", library);
    std::fflush(stdout);
    signals.await_change(library, version);
    if (signals.ended()) return exit_code;
    fmt::print("\n");
  }
}

void hand_over(const RunArguments& arguments, const report::Document& document) {
  if (arguments.round_results >= 0) report::OutputFile(results_path(arguments)).write(report::to_json(document));
}

}  // namespace plugfest::cli
