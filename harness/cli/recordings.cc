#include "harness/cli/recordings.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "fabric/system/clock.h"
#include "harness/bed/test_bed.h"
#include "harness/cli/options.h"
#include "harness/report/verdict.h"
#include "harness/trace/packets.h"

namespace plugfest::cli {

void Captures::add_option(Command command) {
  command.add_option("--pcap FOLDER", folder_,
                     "Keep the packets of the rules that fail, RULE.pcapng in this folder; --html shows them",
                     {.again = false});
}

void Captures::open() { folder_ = make_folder("--pcap", folder_); }

std::filesystem::path Captures::file(std::size_t run, const std::string& rule) const {
  const std::string part = run == 0 ? "" : fmt::format("-run{}", run + 1);
  return std::filesystem::path(folder_) / fmt::format("{}{}.pcapng", rule, part);
}

void Captures::begin(bed::TestBed& bed, std::size_t run, const std::string& rule) {
  const std::filesystem::path name = file(run, rule);
  // NICs append: the packets of an earlier command would precede those of this command.
  std::error_code error;
  std::filesystem::remove(name, error);
  files_.insert(name);
  bed::capture_packets(bed, name);
}

void Captures::end(bed::TestBed& bed, std::size_t run, const report::RuleResult& result) {
  bed::capture_packets(bed, {});
  std::error_code error;
  if (!report::is_bad(result.verdict)) std::filesystem::remove(file(run, result.id), error);
}

void Captures::add_to(report::Document& document) {
  for (std::size_t run = 0; run < document.runs.size(); ++run) {
    for (report::RuleResult& rule : document.runs[run].rules) {
      const std::filesystem::path name = file(run, rule.id);
      if (!report::is_bad(rule.verdict) || !files_.contains(name) || !std::filesystem::exists(name)) continue;
      rule.capture = trace::read_packets(name.string(), trace::kMaxPackets);
      files_.erase(name);
    }
  }
  // A NIC may have noticed the start of a rule only after its end.
  std::error_code error;
  for (const std::filesystem::path& name : files_) std::filesystem::remove(name, error);
}

void Timeline::add_option(Command command) {
  command.add_option("--trace FILE", path_, "Write every call of every rank to FILE, as a timeline for ui.perfetto.dev",
                     {.again = false});
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
  for (const report::FaultRecord& fault : faults)
    trace_.add_span("faults", fault.source, fault.fault, fault.rule, at(fault.start), at(fault.end));
}

void Timeline::write() {
  if (file_) file_->write(trace_.json());
}

}  // namespace plugfest::cli
