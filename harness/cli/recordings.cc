#include "harness/cli/recordings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <system_error>

#include "fabric/system/clock.h"
#include "fabric/system/number.h"
#include "harness/cli/options.h"
#include "harness/report/verdict.h"
#include "harness/trace/packets.h"

namespace plugfest::cli {

void Captures::add_option(Command command) {
  command.add_option("--pcap FOLDER", folder_,
                     "Write the packets of each rule that fails to FOLDER/RULE.pcapng; --html shows them",
                     {.again = false});
}

void Captures::open() { folder_ = make_folder("--pcap", folder_); }

std::filesystem::path Captures::file(std::size_t run, const std::string& rule) const {
  const std::string part = run == 0 ? "" : fmt::format("-run{}", run + 1);
  return std::filesystem::path(folder_) / fmt::format("{}{}.pcapng", rule, part);
}

void Captures::begin(bed::TestBed& bed, std::size_t run, const std::string& rule) {
  const std::filesystem::path name = file(run, rule);
  // NICs append: the packets of an earlier command would precede this command's.
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

void Timeline::open() { file_ = report::open_output(path_); }

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

namespace {

namespace fs = std::filesystem;

// The name of a plugin's file. Its length does not depend on the path's.
std::string file_name(const std::string& plugin) { return fmt::format("{:016x}", hash_of(plugin)); }

// Removes the files about libraries that no longer exist.
void clean_up(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::string plugin;
    std::getline(std::ifstream(entry.path()), plugin);
    if (plugin.starts_with('/') && !fs::exists(plugin, error)) fs::remove(entry.path(), error);
  }
}

}  // namespace

std::string LastFailed::folder() {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  // A relative XDG_STATE_HOME is invalid.
  if (value("XDG_STATE_HOME").starts_with('/')) return value("XDG_STATE_HOME") + "/plugfest/last-failed";
  return value("HOME").empty() ? "" : value("HOME") + "/.local/state/plugfest/last-failed";
}

LastFailed::LastFailed(const std::string& plugin) : plugin_(plugin) {
  if (folder().empty()) return;
  path_ = folder() + '/' + file_name(plugin);
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || line != plugin) return;
  while (std::getline(file, line)) rules_.insert(line);
}

void LastFailed::update(const report::Document& document) {
  std::set<std::string> failed, passed;
  for (const report::Run& run : document.runs) {
    for (const report::RuleResult& rule : run.rules) {
      const bool bad = report::is_bad(rule.verdict) && rule.verdict != report::Verdict::kMissing;
      if (bad) failed.insert(rule.id);
      if (!bad && rule.verdict != report::Verdict::kMissing && rule.verdict != report::Verdict::kSkip)
        passed.insert(rule.id);
    }
  }
  const std::set<std::string> before = rules_;
  for (const std::string& id : passed) rules_.erase(id);
  rules_.insert(failed.begin(), failed.end());
  if (rules_ == before || path_.empty()) return;
  try {
    clean_up(folder());
    write();
  } catch (const std::exception&) {
  }
}

void LastFailed::write() const {
  if (rules_.empty()) {
    fs::remove(path_);
    return;
  }
  fs::create_directories(folder());
  std::string content = plugin_ + '\n';
  for (const std::string& id : rules_) content += id + '\n';
  report::OutputFile(path_).write(content);
}

}  // namespace plugfest::cli
