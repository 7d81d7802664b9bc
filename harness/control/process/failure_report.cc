#include "harness/control/process/failure_report.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <fstream>

#include "harness/control/process/stack.h"

namespace plugfest::control {

namespace {

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), text.size())};
}

/// "SIGKILL to process 812 (plugfest)". `target`: as the first argument of kill(2).
std::string refused_text(int signal, pid_t target, pid_t rank) {
  const std::string name = signal_name(signal);
  if (target == -1) return name + " to all processes";
  if (target == 0 || target == -rank) return name + " to its own process group";
  if (target == rank) return name + " to its own process";
  if (target < 0) return fmt::format("{} to process group {}, to which plugfest belongs", name, -target);
  std::ifstream file(fmt::format("/proc/{}/comm", target));
  std::string program;
  std::getline(file, program);
  return fmt::format("{} to process {}{}", name, target, program.empty() ? "" : " (" + program + ")");
}

/// The text of a call, with `function` in front when the call is a workload that calls several functions.
std::string call_text(const PendingCall* call, const std::string& function) {
  if (call == nullptr || call->text.empty()) return function;
  if (function.empty() || call->text.starts_with(function)) return call->text;
  return fmt::format("{} in {}", function, call->text);
}

}  // namespace

Failure describe_crash(const FailedRank& rank, const rank::Crash& crash, const PendingCall* running,
                       const Ledger& ledger) {
  Failure failure;
  failure.thread = text_of(crash.thread);
  failure.call = call_text(running, text_of(crash.call));
  failure.result = crash.refused_signal == 0
                       ? signal_name(crash.signal)
                       : "tried to send " + refused_text(crash.refused_signal, crash.refused_target, rank.pid);
  failure.signal = crash.signal;
  failure.address = crash.address;
  if (rank.pid > 0) failure.stack = read_stack(rank.pid, crash.thread_id, StackPart::kBelowSignal);
  const std::string subject =
      failure.call.empty() ? fmt::format("its thread {}", failure.thread.empty() ? "?" : failure.thread) : failure.call;
  failure.what =
      fmt::format("rank {}: {} {}{}", rank.name, subject, crash.refused_signal == 0 ? "crashed: " : "", failure.result);
  if (crash.signal == SIGSEGV || crash.signal == SIGBUS) {
    failure.what += fmt::format(" at address 0x{:x}{}", crash.address, ledger.describe(crash.address));
  }
  return failure;
}

Failure describe_exit(const FailedRank& rank, int wait_status, const PendingCall* running, const std::string& reason) {
  Failure failure;
  failure.thread = "?";
  if (running != nullptr) failure.call = running->text;
  if (WIFSIGNALED(wait_status)) {
    failure.signal = WTERMSIG(wait_status);
    failure.result = fmt::format("the process was ended by {}", signal_name(failure.signal));
    // A thread that blocks signals cannot report what it did.
    if (failure.signal == SIGSYS) failure.result += ", as for a signal to plugfest";
  } else {
    failure.result = fmt::format("the process ended with exit code {}", WEXITSTATUS(wait_status));
  }
  if (!reason.empty()) failure.result = reason;
  failure.what = failure.call.empty() ? fmt::format("rank {}: {}", rank.name, failure.result)
                                      : fmt::format("rank {}: {}: {}", rank.name, failure.call, failure.result);
  return failure;
}

Failure describe_hang(const FailedRank& rank, const PendingCall& call, const std::string& function, bool frozen,
                      std::int64_t timeout_ns) {
  Failure failure;
  failure.thread = call.thread;
  failure.call = call_text(&call, function);
  if (failure.call.empty()) failure.call = "a request of the harness";
  failure.result = "did not return";
  if (!frozen && rank.pid > 0)
    failure.stack = read_stack(rank.pid, thread_named(rank.pid, call.thread), StackPart::kWhole);
  failure.what = fmt::format("rank {}: {} did not return within {:g} s{}", rank.name, failure.call,
                             static_cast<double>(timeout_ns) / 1e9, frozen ? " (the rank is frozen)" : "");
  return failure;
}

}  // namespace plugfest::control
