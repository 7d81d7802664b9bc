// From a request to a `Started` outcome. Internal to this folder.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "harness/control/call.h"
#include "harness/control/process/rank_process.h"

namespace plugfest::control {

/// Copies what all answers have.
void fill_in(Outcome& outcome, const rank::CallAnswer& answer, const PendingCall& call);

/// The outcome's code as the record shows it: `if_ok` for Success, else the code's name.
std::string result_text(const rank::CallAnswer& answer, std::string if_ok);

/// "0x2", "NULL".
std::string pointer_text(std::uint64_t value);

/// Value of a slot under `preset`. `stale`: what kStale stands for.
std::uint64_t slot_value(Preset preset, std::uint64_t stale);

/// Sends the request; `finish(outcome, answer, process)` fills in the rest of the outcome when the answer is there,
/// does the bookkeeping and returns the result as the record shows it.
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
    return outcome;
  });
}

}  // namespace plugfest::control
