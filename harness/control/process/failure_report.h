// Describes crashes and hangs of a rank: one line, the call, the native stack.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "harness/control/process/ledger.h"
#include "harness/control/process/rpc.h"
#include "harness/control/process/stack.h"
#include "harness/wire/protocol.h"

namespace plugfest::control {

/// The failure of a rank, for `Crashed` and `Hung` (errors.h) and the call record.
struct Failure {
  /// "rank a.eth0: isend(…) crashed: SIGSEGV at address 0x10".
  std::string what;
  /// "isend(…)"; "" when no call was in progress.
  std::string call;
  /// The call's thread, and its result in the call record: "SIGSEGV", "tried to send SIGKILL to all processes".
  std::string thread;
  std::string result;
  /// Signal number, and the address that was accessed; 0 for none.
  int signal = 0;
  std::uint64_t address = 0;
  /// Innermost frame first; empty when it could not be read.
  std::vector<std::string> stack;
};

/// Name and process of the rank that failed.
struct FailedRank {
  const std::string& name;
  pid_t pid = -1;
};

/// Describes the failure of a rank that sent a crash report: its thread waits in the signal handler. `ledger`:
/// describes the address. `running`: the call that the thread executes, or null.
Failure describe_crash(const FailedRank& rank, const wire::Crash& crash, const PendingCall* running,
                       const Ledger& ledger);

/// Describes the end of a process with `wait_status` that sent no crash report. `running`: a call in progress, or null.
/// `reason`: see ChildProcess::end_reason.
Failure describe_exit(const FailedRank& rank, int wait_status, const PendingCall* running,
                      const std::string& reason = "");

/// Why a rank that still runs has closed a channel: "the plugin closed descriptor 4, which belongs to plugfest".
/// `failed_start`: see RpcChannels.
std::string describe_closed_channel(pid_t pid, const std::string& failed_start);

/// Describes a `call` that did not return within `timeout_ns`. `function`: the plugin function that its thread
/// executes, "" if it executes none or did not answer. `stack`: see read_stack().
Failure describe_hang(const FailedRank& rank, const PendingCall& call, const std::string& function, bool frozen,
                      std::int64_t timeout_ns, std::vector<std::string> stack);

}  // namespace plugfest::control
