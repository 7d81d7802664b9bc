#include "fabric/guest/guest.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "fabric/guest/archive.h"
#include "fabric/guest/machine.h"
#include "fabric/guest/modules.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest::guest {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kKvmTimeout{2};
constexpr std::chrono::minutes kBootTimeout{5};  // measured with emulation on a loaded machine: 40 s

/// The program of init/: in this program's folder or in ../bin.
fs::path init_program() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& candidate :
       {folder / "plugfest-guest-init", folder.parent_path() / "bin" / "plugfest-guest-init"})
    if (fs::exists(candidate)) return candidate;
  throw std::runtime_error(
      fmt::format("plugfest-guest-init is neither in {} nor in {}; in a clone, scripts/plugfest builds it",
                  folder.string(), (folder.parent_path() / "bin").string()));
}

std::string initial_files(const Kernel& kernel, const CommandLine& command) {
  Archive archive;
  for (const char* folder : {"proc", "sys", "dev", "lower", "upper", "root", "modules"}) archive.add_folder(folder);
  archive.add_program("init", read_file(init_program().string()));
  archive.add_file(kCommandFile, to_text(command));
  for (std::size_t i = 0; i < kernel.modules.size(); ++i)
    archive.add_file(fmt::format("modules/{:03}-{}", i, kernel.modules[i].stem().string()),
                     module_content(kernel.modules[i]));
  return archive.finish();
}

// Blocks SIGINT, SIGTERM and SIGHUP and makes them readable from a descriptor.
class Signals {
 public:
  Signals() {
    sigemptyset(&caught_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&caught_, number);
    sigprocmask(SIG_BLOCK, &caught_, &before_);
    descriptor_ = Descriptor(signalfd(-1, &caught_, SFD_CLOEXEC));
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

  int descriptor() const { return descriptor_.get(); }
  int read_signal() const {
    signalfd_siginfo info = {};
    return read(descriptor_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t caught_;
  sigset_t before_;
  Descriptor descriptor_;
};

void write_output(int fd, std::string_view bytes) {
  if (!write_all(fd, bytes)) throw_errno("write the output of the guest");
}

/// A machine and the communication with it, from boot to power-off.
class GuestSession {
 public:
  GuestSession(const Kernel& kernel, const std::string& files, Acceleration acceleration, const Signals& signals)
      : machine_(kernel, files, acceleration), signals_(signals) {}

  /// Returns false if the guest does not report its start within the timeout.
  bool started_within(steady_clock::duration timeout) {
    const steady_clock::time_point deadline = steady_clock::now() + timeout;
    while (!started_ && !outcome_) {
      if (steady_clock::now() >= deadline || ended()) return false;
      step(deadline);
    }
    return true;
  }

  Outcome wait() {
    while (!outcome_) {
      if (ended()) throw std::runtime_error("the guest exited before the command:" + console_end());
      step(steady_clock::time_point::max());
    }
    outcome_->results = std::move(results_);
    return *outcome_;
  }

  /// The last console output of the guest's kernel and QEMU.
  std::string console_end() const {
    constexpr std::size_t kMaxBytes = 1500;
    const std::string end = console_.size() > kMaxBytes ? console_.substr(console_.size() - kMaxBytes) : console_;
    return end.empty() ? " no console output" : "\n" + end;
  }

 private:
  /// Whether QEMU has exited and everything that it has sent was read.
  bool ended() const { return console_ended_ && port_ended_; }

  void step(steady_clock::time_point deadline) {
    int timeout_ms = -1;
    if (deadline != steady_clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
      timeout_ms = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    }
    // poll() ignores a descriptor of -1.
    pollfd events[] = {{port_ended_ ? -1 : machine_.port(), POLLIN, 0},
                       {console_ended_ ? -1 : machine_.console(), POLLIN, 0},
                       {signals_.descriptor(), POLLIN, 0}};
    if (poll(events, std::size(events), timeout_ms) < 0) return;
    char buffer[65536];
    if (events[1].revents != 0) {
      const ssize_t got = read(machine_.console(), buffer, sizeof(buffer));
      if (got > 0) console_.append(buffer, static_cast<std::size_t>(got));
      console_ended_ = got <= 0;
    }
    if (events[0].revents != 0) {
      const ssize_t got = read(machine_.port(), buffer, sizeof(buffer));
      if (got > 0) frames_.add({buffer, static_cast<std::size_t>(got)});
      port_ended_ = got <= 0;
      while (const std::optional<Frame> frame = frames_.next()) handle(*frame);
    }
    if (events[2].revents != 0) forward(signals_.read_signal());
  }

  void forward(int signal) {
    if (!started_)
      outcome_ = Outcome{kKilledBySignal + signal, {}};
    else
      write_frame(machine_.port(), FrameKind::kSignal, std::to_string(signal));
  }

  void handle(const Frame& frame) {
    switch (frame.kind) {
      case FrameKind::kReady:
        started_ = true;
        break;
      case FrameKind::kOutput:
        write_output(STDOUT_FILENO, frame.content);
        break;
      case FrameKind::kErrors:
        write_output(STDERR_FILENO, frame.content);
        break;
      case FrameKind::kFile: {
        const std::string path = frame.content.c_str();
        if (path.size() == frame.content.size()) throw std::runtime_error("the guest sent a file without a name");
        results_[path] = frame.content.substr(path.size() + 1);
        break;
      }
      case FrameKind::kExit:
        outcome_ = Outcome{std::atoi(frame.content.c_str()), {}};
        break;
      case FrameKind::kFailed:
        throw std::runtime_error("the guest could not start the command: " + frame.content);
      case FrameKind::kSignal:
        break;  // sent by the host only
    }
  }

  Machine machine_;
  const Signals& signals_;
  FrameReader frames_;
  std::string console_;
  std::map<std::string, std::string> results_;
  std::optional<Outcome> outcome_;
  bool started_ = false;
  bool console_ended_ = false;
  bool port_ended_ = false;
};

}  // namespace

ModuleNames boot_modules() {
  return {.required = {"virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay"}, .optional = {}};
}

Outcome run_in_guest(const Kernel& kernel, const CommandLine& command) {
  const std::string files = initial_files(kernel, command);
  const Signals signals;
  if (access("/dev/kvm", R_OK | W_OK) == 0) {
    GuestSession guest(kernel, files, Acceleration::kKvm, signals);
    if (guest.started_within(kKvmTimeout)) return guest.wait();
  }
  GuestSession guest(kernel, files, Acceleration::kEmulation, signals);
  if (!guest.started_within(kBootTimeout)) throw std::runtime_error("the guest did not boot:" + guest.console_end());
  return guest.wait();
}

}  // namespace plugfest::guest
