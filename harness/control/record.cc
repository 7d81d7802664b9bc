#include "harness/control/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace plugfest::control {

namespace {

constexpr std::size_t kKept = 256;

}  // namespace

void RecordRing::add(CallRecord record) {
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
