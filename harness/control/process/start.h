// Starts plugin calls. Rules use it for calls that Rank, SendComm and RecvComm have no function for.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "harness/control/call.h"
#include "harness/control/process/rank_process.h"

namespace plugfest::control {

/// Sets the members that every outcome has.
void fill_in(Outcome& outcome, const rank::CallAnswer& answer, const PendingCall& call);

/// The result for the call record: `if_ok` for Success, else the name of the code.
std::string result_text(const rank::CallAnswer& answer, std::string if_ok);

/// Errors: `UndefinedCode` unless the code is one of kSuccess to kRemoteError. `broken`: what a request of many calls
/// says about the one that failed; else empty.
void require_defined_code(const Outcome& outcome, const std::string& broken);

/// "0x2", "NULL".
std::string pointer_text(std::uint64_t value);

/// The value of an output before the call. `stale`: the value for kStale.
std::uint64_t slot_value(Preset preset, std::uint64_t stale);

/// Sends a request of PLUGFEST_REQUESTS. `text`: see PendingCall. When the answer has arrived, `finish(outcome, answer,
/// process)` sets the members of `T`, updates the ledger and returns the result for the call record.
template <class T, class Request, class Finish>
Started<T> start(const std::shared_ptr<RankProcess>& process, const std::string& thread, const Request& request,
                 std::string text, Finish finish) {
  auto call = process->send(thread, request, std::move(text));
  return Started<T>(std::move(call), [finish](PendingCall& pending) {
    const auto answer = pending.rank->read<rank::AnswerTo<Request>>(pending);
    T outcome;
    fill_in(outcome, answer, pending);
    std::string result = finish(outcome, answer, *pending.rank);
    pending.rank->record(pending, answer, result_text(answer, std::move(result)));
    if constexpr (requires { outcome.broken; }) {
      require_defined_code(outcome, outcome.broken);
    } else {
      require_defined_code(outcome, "");
    }
    return outcome;
  });
}

}  // namespace plugfest::control
