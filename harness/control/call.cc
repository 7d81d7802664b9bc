#include "harness/control/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "harness/control/rank_process.h"

namespace plugfest::control {

std::string result_name(int code) { return wire::code_text(code); }

std::vector<std::size_t> numbers_below(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  return numbers;
}

void require_success(const Outcome& outcome) {
  if (!outcome.damage.empty()) throw Damage(outcome.rank, fmt::format("{} {}", outcome.call, outcome.damage));
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

void fill_in(Outcome& outcome, const wire::CallAnswer& answer, const PendingCall& call) {
  outcome.code = answer.code;
  outcome.start_ns = answer.start_ns;
  outcome.end_ns = answer.end_ns;
  outcome.damage = answer.damage;
  outcome.changes = answer.changes;
  outcome.rank = call.rank->name();
  outcome.call = fmt::format("rank {}: {}", outcome.rank, call.text);
}

std::string result_text(const wire::CallAnswer& answer, std::string if_ok) {
  return answer.code == kSuccess ? std::move(if_ok) : result_name(answer.code);
}

std::string thread_of(const std::string& thread, const wire::Call& call) {
  if (!thread.empty()) return thread;
  return std::string(plugin::api_layout(plugin::kNewestApi).find(call.function)->thread);
}

const wire::Argument& output_of(const wire::CalledAnswer& answer, std::size_t index) {
  static const wire::Argument nothing;
  return index < answer.outputs.size() ? answer.outputs[index] : nothing;
}

void take_pointer(PointerOutcome& outcome, const wire::CalledAnswer& answer, std::size_t index, std::uint64_t preset) {
  outcome.value = output_of(answer, index).number;
  outcome.untouched = outcome.value == preset;
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

namespace {

constexpr std::size_t kKept = 256;

}  // namespace

void RecordRing::add(CallRecord record) {
  if (observer_ != nullptr) observer_->on_call(rank_, record);
  if (!records_.empty()) {
    CallRecord& last = records_.back();
    if (last.thread == record.thread && last.call == record.call && last.result == record.result) {
      last.end_ns = record.end_ns;
      ++last.count;
      return;
    }
  }
  records_.push_back(std::move(record));
  if (records_.size() > kKept) records_.pop_front();
}

std::vector<std::string> RecordRing::last_lines(std::size_t count, std::int64_t origin_ns) const {
  std::vector<std::string> lines;
  const std::size_t first = records_.size() - std::min(count, records_.size());
  for (std::size_t i = first; i < records_.size(); ++i) {
    const CallRecord& record = records_[i];
    std::string line = fmt::format("{:9.3f} ms  {:<5} {} → {}", static_cast<double>(record.start_ns - origin_ns) / 1e6,
                                   record.thread, record.call, record.result);
    if (record.count > 1) {
      line +=
          fmt::format("  (×{}, {:.3f} ms)", record.count, static_cast<double>(record.end_ns - record.start_ns) / 1e6);
    } else {
      line += fmt::format("  ({:.0f} µs)", static_cast<double>(record.end_ns - record.start_ns) / 1e3);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace plugfest::control
