#include "harness/control/process/failure_report.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cstring>

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
  failure.result = signal_name(crash.signal);
  failure.signal = crash.signal;
  failure.address = crash.address;
  failure.stack = read_stack(rank.pid, crash.thread_id, StackPart::kBelowSignal);
  const std::string subject =
      failure.call.empty() ? fmt::format("its thread {}", failure.thread.empty() ? "?" : failure.thread) : failure.call;
  failure.what = fmt::format("rank {}: {} crashed: {}", rank.name, subject, failure.result);
  if (crash.signal == SIGSEGV || crash.signal == SIGBUS) {
    failure.what += fmt::format(" at address 0x{:x}{}", crash.address, ledger.describe(crash.address));
  }
  return failure;
}

Failure describe_exit(const FailedRank& rank, int wait_status, const PendingCall* running) {
  Failure failure;
  failure.thread = "?";
  if (running != nullptr) failure.call = running->text;
  if (WIFSIGNALED(wait_status)) {
    failure.signal = WTERMSIG(wait_status);
    failure.result = fmt::format("the process was ended by {}", signal_name(failure.signal));
  } else {
    failure.result = fmt::format("the process ended with exit code {}", WEXITSTATUS(wait_status));
  }
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
  if (!frozen) failure.stack = read_stack(rank.pid, thread_named(rank.pid, call.thread), StackPart::kWhole);
  failure.what = fmt::format("rank {}: {} did not return within {:g} s{}", rank.name, failure.call,
                             static_cast<double>(timeout_ns) / 1e9, frozen ? " (the rank is frozen)" : "");
  return failure;
}

}  // namespace plugfest::control
