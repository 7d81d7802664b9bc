#include "conformance/model/finding.h"

#include <algorithm>
#include <utility>

#include "conformance/model/generator.h"
#include "harness/control/call.h"

namespace plugfest::model {
namespace {

constexpr unsigned kRuns = 3;
constexpr std::uint64_t kMostLengthened = 2'000'000;

}  // namespace

Schedule lengthened(Schedule schedule, std::uint64_t messages) {
  const std::uint64_t now = count_messages(schedule);
  if (now == 0) return schedule;
  const std::uint64_t factor = (std::min(messages, kMostLengthened) + now - 1) / now;
  for (Step& step : schedule.steps) {
    auto* const transfer = std::get_if<Transfer>(&step);
    if (transfer != nullptr) transfer->repeat *= static_cast<std::uint32_t>(std::max<std::uint64_t>(factor, 1));
  }
  return schedule;
}

std::optional<Played> Examiner::run(const Stage& stage, const Schedule& schedule) {
  if (stop_ || std::chrono::steady_clock::now() > end_) return std::nullopt;
  ++tried_;
  stage.session.end_idle();
  try {
    return play(stage, schedule, stop_);
  } catch (const control::Interrupted&) {
    return std::nullopt;
  }
}

std::optional<std::uint64_t> Examiner::fails(const Schedule& schedule, unsigned attempts) {
  for (; attempts > 0; --attempts) {
    const std::optional<Played> played = run(quick_, schedule);
    if (played && played->deviation) return played->messages;
  }
  return std::nullopt;
}

Finding Examiner::examine(const Schedule& schedule, const Deviation& deviation, std::uint64_t before) {
  Finding finding{.schedule = schedule, .deviation = deviation};
  end_ = std::chrono::steady_clock::now() + limit_;
  unsigned attempts = 1;
  // Of a fault that needs many messages, such as one in 100000; else 0.
  std::uint64_t needed = 0;
  if (!fails(schedule, 1)) {
    if (fails(schedule, kRuns)) {
      attempts = kRuns;
    } else {
      needed = 2 * (before + count_messages(schedule));
    }
  }
  const auto shown = [&](const Schedule& candidate) { return needed == 0 ? candidate : lengthened(candidate, needed); };
  const auto shows = [&](const Schedule& candidate) {
    const std::optional<std::uint64_t> messages = fails(shown(candidate), attempts);
    if (messages) needed = std::min(needed, 2 * std::max<std::uint64_t>(*messages, 1));
    return messages.has_value();
  };
  if (needed != 0 && !shows(schedule)) return finding;
  const Schedule small = shown(shrink(schedule, shows));
  // The patient session decides, whatever time the search took.
  end_ = std::chrono::steady_clock::time_point::max();
  const auto start = std::chrono::steady_clock::now();
  while (finding.runs < kRuns && (finding.runs == 0 || std::chrono::steady_clock::now() < start + limit_ / 4)) {
    std::optional<Played> played = run(patient_, small);
    if (!played) break;
    ++finding.runs;
    if (!played->deviation) continue;
    ++finding.failures;
    finding.messages = played->messages;
    finding.deviation = std::move(*played->deviation);
  }
  if (finding.failures > 0) finding.schedule = small;
  finding.tried = tried_;
  return finding;
}

}  // namespace plugfest::model
