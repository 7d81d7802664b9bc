#include "harness/control/call.h"

#include <fmt/format.h>

#include "harness/control/deviation.h"
#include "harness/control/process/rank_process.h"
#include "harness/control/process/start.h"

namespace plugfest::control {

std::string result_name(int code) { return rank::code_text(code); }

void require_success(const Outcome& outcome) {
  if (!outcome.damage.empty()) {
    throw Damage(outcome.rank, fmt::format("{} {}", outcome.call, outcome.damage));
  }
  if (!outcome.ok()) {
    throw CallFailed(outcome.rank, fmt::format("{} returned {}", outcome.call, result_name(outcome.code)),
                     outcome.code);
  }
}

void require_defined_code(const Outcome& outcome, const std::string& broken) {
  if (outcome.code >= kSuccess && outcome.code <= kRemoteError) return;
  const std::string what = fmt::format("{} returned {}", outcome.call, result_name(outcome.code));
  throw UndefinedCode(outcome.rank, broken.empty() ? what : fmt::format("rank {}: {}", outcome.rank, broken));
}

bool answer_arrived(PendingCall& call) {
  call.rank->poll(call);
  return call.answered;
}

bool is_overdue(PendingCall& call) { return call.rank->is_overdue(call); }

void fill_in(Outcome& outcome, const rank::CallAnswer& answer, const PendingCall& call) {
  outcome.code = answer.code;
  outcome.start_ns = answer.start_ns;
  outcome.end_ns = answer.end_ns;
  outcome.damage = answer.damage;
  outcome.changes = answer.changes;
  outcome.rank = call.rank->name();
  outcome.call = fmt::format("rank {}: {}", outcome.rank, call.text);
}

std::string result_text(const rank::CallAnswer& answer, std::string if_ok) {
  return answer.code == kSuccess ? std::move(if_ok) : result_name(answer.code);
}

std::string pointer_text(std::uint64_t value) { return value == 0 ? "NULL" : fmt::format("0x{:x}", value); }

std::uint64_t slot_value(Preset preset, std::uint64_t stale) {
  switch (preset) {
    case Preset::kNull:
      return 0;
    case Preset::kMarker:
      return 1;
    case Preset::kStale:
      return stale;
    case Preset::kPoison:
      break;
  }
  return kPoison;
}

}  // namespace plugfest::control
