#include "harness/control/process/failure_report.h"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fabric/system/process.h"

namespace plugfest::control {

namespace {

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), text.size())};
}

// "process 812 (plugfest)". `target`: has the form of the first argument of kill(2).
std::string target_text(pid_t target, pid_t rank) {
  if (target == -1) return "all processes";
  if (target == 0 || target == -rank) return "its own process group";
  if (target == rank) return "its own process";
  if (target < 0) return fmt::format("process group {}, to which plugfest belongs", -target);
  std::ifstream file(fmt::format("/proc/{}/comm", target));
  std::string program;
  std::getline(file, program);
  return fmt::format("process {}{}", target, program.empty() ? "" : " (" + program + ")");
}

// "tried to send SIGKILL to process 812 (plugfest)".
std::string refused_text(const wire::Crash& crash, pid_t rank) {
  const std::string target = target_text(crash.refused_target, rank);
  switch (crash.refused_call) {
    case SYS_reboot:
      return "tried to reboot the machine";
    case SYS_ptrace:
      return fmt::format("tried to trace {} with ptrace", target);
    case SYS_process_vm_writev:
      return fmt::format("tried to write to the memory of {} with process_vm_writev", target);
    case SYS_prlimit64:
      return fmt::format("tried to change a limit of {} with prlimit", target);
    case SYS_fcntl:
      return fmt::format("tried to direct signals of a descriptor to {} with F_SETOWN", target);
    default:
      return fmt::format("tried to send {} to {}", signal_name(crash.refused_action), target);
  }
}

// The text of a call, preceded by `function` when the call is a workload that calls several functions.
std::string call_text(const PendingCall* call, const std::string& function) {
  if (call == nullptr || call->text.empty()) return function;
  if (function.empty() || call->text.starts_with(function)) return call->text;
  return fmt::format("{} in {}", function, call->text);
}

}  // namespace

Failure describe_crash(const FailedRank& rank, const wire::Crash& crash, const PendingCall* running,
                       const Ledger& ledger) {
  Failure failure;
  failure.thread = text_of(crash.thread);
  failure.call = call_text(running, text_of(crash.call));
  failure.result = crash.refused_call == 0 ? signal_name(crash.signal) : refused_text(crash, rank.pid);
  failure.signal = crash.signal;
  failure.address = crash.address;
  if (rank.pid > 0) failure.stack = read_stack(rank.pid, crash.thread_id, StackPart::kBelowSignal);
  const std::string subject =
      failure.call.empty() ? fmt::format("its thread {}", failure.thread.empty() ? "?" : failure.thread) : failure.call;
  const std::string exception = text_of(crash.exception);
  if (!exception.empty()) {
    failure.result = "threw " + exception;
    const auto throws = [](const std::string& frame) { return frame.find("__cxa_throw") != std::string::npos; };
    const auto thrown = std::find_if(failure.stack.begin(), failure.stack.end(), throws);
    if (thrown != failure.stack.end()) failure.stack.erase(failure.stack.begin(), thrown + 1);
  }
  const bool says_what_happened = crash.refused_call != 0 || !exception.empty();
  failure.what =
      fmt::format("rank {}: {} {}{}", rank.name, subject, says_what_happened ? "" : "crashed: ", failure.result);
  if (crash.signal == SIGSEGV || crash.signal == SIGBUS)
    failure.what += fmt::format(" at address 0x{:x}{}", crash.address, ledger.describe(crash.address));
  return failure;
}

Failure describe_exit(const FailedRank& rank, int wait_status, const PendingCall* running, const std::string& reason) {
  Failure failure;
  failure.thread = "?";
  if (running != nullptr) failure.call = running->text;
  if (WIFSIGNALED(wait_status)) {
    failure.signal = WTERMSIG(wait_status);
    failure.result = fmt::format("the process was ended by {}", signal_name(failure.signal));
    if (failure.signal == SIGKILL)
      failure.result += ", by the kernel (out of memory: see dmesg), the plugin or another process";
    // A thread that blocks signals cannot report its call.
    if (failure.signal == SIGSYS) failure.result += ", as for a signal to plugfest";
  } else {
    failure.result = fmt::format("the process ended with exit code {}", WEXITSTATUS(wait_status));
  }
  if (!reason.empty()) failure.result = reason;
  failure.what = failure.call.empty() ? fmt::format("rank {}: {}", rank.name, failure.result)
                                      : fmt::format("rank {}: {}: {}", rank.name, failure.call, failure.result);
  return failure;
}

std::string describe_closed_channel(pid_t pid, const std::string& failed_start) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string folder = fmt::format("/proc/{}/", pid);
  for (const int fd : {wire::kControlFd, wire::kMainFd}) {
    const std::string target = fs::read_symlink(fmt::format("{}fd/{}", folder, fd), error).string();
    if (!target.starts_with("socket:"))
      return fmt::format("the plugin closed descriptor {}, which belongs to plugfest", fd);
  }
  std::string reason = failed_start.empty() ? "it closed its connection to plugfest"
                                            : "plugfest cannot start a thread in the rank: " + failed_start;
  rlimit files = {}, memory = {};
  if (prlimit(pid, RLIMIT_NOFILE, nullptr, &files) == 0) {
    const auto open = std::distance(fs::directory_iterator(folder + "fd", error), fs::directory_iterator());
    if (static_cast<rlim_t>(open) >= files.rlim_cur)
      reason += fmt::format("; {} descriptors are open, and its limit is {} (RLIMIT_NOFILE)", open, files.rlim_cur);
  }
  if (prlimit(pid, RLIMIT_AS, nullptr, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY)
    reason += fmt::format("; its address space is limited to {} bytes (RLIMIT_AS)", memory.rlim_cur);
  return reason;
}

Failure describe_hang(const FailedRank& rank, const PendingCall& call, const std::string& function, bool frozen,
                      std::int64_t timeout_ns, std::vector<std::string> stack) {
  Failure failure;
  failure.thread = call.thread;
  failure.call = call_text(&call, function);
  if (failure.call.empty()) failure.call = "a request of the harness";
  failure.result = "did not return";
  failure.stack = std::move(stack);
  failure.what = fmt::format("rank {}: {} did not return within {:g} s{}", rank.name, failure.call,
                             static_cast<double>(timeout_ns) / 1e9, frozen ? " (the rank is frozen)" : "");
  return failure;
}

}  // namespace plugfest::control
