#include "harness/cli/watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "fabric/netns/supervision.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "harness/report/baseline.h"
#include "harness/report/formats.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;

// A build has ended if the library has not changed for this long.
constexpr int kQuietMs = 200;

// Returns whether one of the descriptors is readable; waits up to `milliseconds`, -1: without limit.
bool await_readable(std::initializer_list<int> descriptors, int milliseconds) {
  std::vector<pollfd> polled;
  for (const int descriptor : descriptors) polled.push_back({descriptor, POLLIN, 0});
  int ready = 0;
  do ready = poll(polled.data(), polled.size(), milliseconds);
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// The signals that end the command, and SIGCHLD, as a descriptor. They are blocked while the object exists.
class Signals {
 public:
  Signals() {
    sigemptyset(&signals_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      sigaddset(&signals_, number);
      std::signal(number, SIG_DFL);  // the kernel discards ignored signals, also blocked ones
    }
    sigprocmask(SIG_BLOCK, &signals_, &before_);
    descriptor_ = Descriptor(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!descriptor_) throw_errno("--watch: signalfd");
  }
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_.get(); }
  // Whether a signal has ended the command.
  bool ended() const { return ended_; }

  // Reads the signals that have arrived. Forwards to `round` those that a process sent to this process alone; a
  // terminal sends its signals to both.
  void read(pid_t round = -1) {
    signalfd_siginfo info = {};
    while (::read(descriptor_.get(), &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      ended_ = true;
      if (round > 0 && info.ssi_code <= 0) kill(round, static_cast<int>(info.ssi_signo));
    }
  }
  // Waits until the process has exited and returns its exit code.
  int await(pid_t round) {
    for (;;) {
      read(round);
      int status = 0;
      if (waitpid(round, &status, WNOHANG) == round) return exit_code_of(status);
      await_readable({descriptor_.get()}, -1);
    }
  }

 private:
  sigset_t signals_ = {};
  sigset_t before_ = {};
  Descriptor descriptor_;
  bool ended_ = false;
};

// Detects that a file was replaced or rewritten, by the events of its folder. If the path is a symbolic link, also
// watches its target.
class LibraryWatch {
 public:
  explicit LibraryWatch(const std::string& library)
      : library_(library), descriptor_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    if (!descriptor_) throw_errno("--watch: inotify");
    for (const fs::path& path : {fs::path(library), fs::canonical(library)}) {
      names_.insert(path.filename());
      const std::string folder = path.parent_path().string();
      if (inotify_add_watch(descriptor_.get(), folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE) < 0)
        throw_errno("--watch: " + folder);
    }
    version_.changed(library_);
  }

  // Returns after the file has changed and then kept its content for a moment, or after a signal.
  void await_change(Signals& signals) {
    while (!signals.ended()) {
      const bool has_changed = read() && version_.changed(library_) && fs::exists(library_);
      if (has_changed) return settle(signals);
      await_readable({descriptor_.get(), signals.descriptor()}, -1);
      signals.read();
    }
  }

 private:
  void settle(Signals& signals) {
    while (!signals.ended() && await_readable({descriptor_.get(), signals.descriptor()}, kQuietMs)) {
      read();
      signals.read();
    }
    version_.changed(library_);
  }
  // Reads the events. Returns whether one concerns the file.
  bool read() {
    bool found = false;
    alignas(inotify_event) std::array<char, 4096> events;
    for (ssize_t size; (size = ::read(descriptor_.get(), events.data(), events.size())) > 0;) {
      for (const char* at = events.data(); at < events.data() + size;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(at);
        if ((event->mask & IN_IGNORED) != 0) throw std::runtime_error("--watch: the folder of the library was removed");
        // A file that was created is not complete, but a link is.
        const bool is_complete = (event->mask & IN_CREATE) == 0 || fs::is_symlink(library_);
        found |= (event->mask & IN_Q_OVERFLOW) != 0 ||
                 (event->len != 0 && is_complete && names_.count(fs::path(event->name)) != 0);
        at += sizeof(*event) + event->len;
      }
    }
    return found;
  }

  const std::string library_;
  Descriptor descriptor_;
  std::set<fs::path> names_;
  FileVersion version_;
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
    if (is_given) throw std::runtime_error(fmt::format("--watch: does not go with {}: leave one of them out", option));
  if (arguments.outputs.text_stream() != stdout)
    throw std::runtime_error("--watch: each round writes its results: name a file instead of standard output");
  const std::string library = find_plugin(arguments.plugin, false).library;
  if (library.empty())
    throw std::runtime_error(
        fmt::format("--watch: {} is a part of NCCL: name a library that changes", arguments.plugin));
  return library;
}

// The results that a round wrote; nothing if it wrote none.
std::optional<report::Document> read_round(int descriptor) {
  if (lseek(descriptor, 0, SEEK_SET) != 0) return std::nullopt;
  const std::string text = read_all(descriptor);
  if (text.empty()) return std::nullopt;
  return report::read_document(text);
}

}  // namespace

std::optional<int> watch(RunArguments& arguments) {
  const std::string library = library_of(arguments);
  arguments.seed = chosen_seed(arguments.seed);
  LibraryWatch file(library);
  Signals signals;
  std::optional<report::Document> before;
  for (;;) {
    Descriptor results(memfd_create("results", MFD_CLOEXEC));
    if (!results) throw_errno("--watch: memfd_create");
    std::fflush(stdout);
    const pid_t own_process = getpid();
    const pid_t round = netns::fork_or_throw();
    if (round == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != own_process) _exit(kKilledBySignal + SIGKILL);
      static Descriptor own = std::move(results);
      arguments.round_results = own.get();
      return std::nullopt;  // also restores the signal mask
    }
    const int exit_code = signals.await(round);
    std::optional<report::Document> after = read_round(results.get());
    if (!after && !before) return exit_code;
    if (before && after && after->stop_signal == 0)
      fmt::print("{}", report::describe(report::compare(*before, *after)));
    if (after) before = std::move(after);
    if (!signals.ended()) fmt::print("\nWaiting until {} changes; Ctrl-C ends\n", library);
    std::fflush(stdout);
    file.await_change(signals);
    if (signals.ended()) return exit_code;
    fmt::print("\n");
  }
}

void hand_over(const RunArguments& arguments, const report::Document& document) {
  if (arguments.round_results < 0) return;
  const std::string text = report::to_json(document);
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = write(arguments.round_results, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) throw_errno("--watch: cannot keep the results");
    written += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
}

}  // namespace plugfest::cli
