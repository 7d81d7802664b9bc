#include "harness/cli/run/captures.h"

#include <fmt/format.h>

#include <system_error>

#include "harness/bed/transport.h"
#include "harness/cli/options/outputs.h"
#include "harness/report/verdict.h"
#include "harness/trace/packets.h"

namespace plugfest::cli {

void Captures::add_option(Command command) {
  command
      .add_option("--pcap", folder_,
                  "Keep the packets of the rules that fail, RULE.pcapng in this folder; --html shows them")
      .type_name("FOLDER");
}

void Captures::open() { folder_ = make_folder("--pcap", folder_); }

std::filesystem::path Captures::file(std::size_t run, const std::string& rule) const {
  const std::string part = run == 0 ? "" : fmt::format("-run{}", run + 1);
  return std::filesystem::path(folder_) / fmt::format("{}{}.pcapng", rule, part);
}

void Captures::begin(bed::TestBed& bed, std::size_t run, const std::string& rule) {
  const std::filesystem::path name = file(run, rule);
  // NICs append, and one of an earlier command would be mixed with this one.
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
      rule.capture = trace::read_packets(name.string(), trace::kMostPackets);
      files_.erase(name);
    }
  }
  // A NIC may have noticed the begin of a rule only after its end.
  std::error_code error;
  for (const std::filesystem::path& name : files_) std::filesystem::remove(name, error);
}

}  // namespace plugfest::cli
