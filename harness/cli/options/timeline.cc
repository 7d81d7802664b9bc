#include "harness/cli/options/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/system/clock.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {

void Timeline::add_option(Command command) {
  command.add_option("--trace", path_, "Write every call of every rank to FILE, as a timeline for ui.perfetto.dev")
      .type_name("FILE");
}

void Timeline::open() {
  if (!path_.empty()) file_ = std::make_unique<report::OutputFile>(path_);
}

void Timeline::add(const report::RuleResult& rule) {
  if (!file_) return;
  const Nanoseconds end_ns = now_ns();
  const std::int64_t start_ns = end_ns - static_cast<std::int64_t>(rule.seconds * 1e9);
  auto lane = std::find_if(lane_ends_ns_.begin(), lane_ends_ns_.end(), [&](auto end) { return end <= start_ns; });
  if (lane == lane_ends_ns_.end()) lane = lane_ends_ns_.insert(lane, 0);
  *lane = end_ns;
  trace_.add_span("rules", fmt::format("lane {}", lane - lane_ends_ns_.begin() + 1), rule.id,
                  std::string(report::text(rule.verdict)), start_ns, end_ns);
}

void Timeline::add(const std::vector<report::FaultRecord>& faults, std::int64_t origin_ns) {
  if (!file_) return;
  const auto at = [&](double seconds) { return origin_ns + static_cast<std::int64_t>(seconds * 1e9); };
  for (const report::FaultRecord& fault : faults) {
    trace_.add_span("faults", fault.source, fault.fault, fault.rule, at(fault.start), at(fault.end));
  }
}

void Timeline::write() {
  if (file_) file_->write(trace_.json());
}

}  // namespace plugfest::cli
