#include "harness/cli/fuzz_report.h"

#include <fmt/format.h>

#include "fabric/system/text.h"
#include "harness/wire/json.h"
#include "version.h"

namespace plugfest::cli {
namespace {

constexpr std::size_t kLineBytes = 1000;
constexpr std::size_t kLines = 20;

std::optional<std::string> text_of_step(const model::Schedule& schedule, const model::Deviation& deviation) {
  if (!deviation.step) return std::nullopt;
  if (*deviation.step >= schedule.steps.size()) return "the close at the end";
  return model::step_text(schedule, schedule.steps[*deviation.step]);
}

// The last lines that each rank logged or printed.
void print_evidence(std::FILE* stream, const control::Evidence& evidence) {
  for (const control::RankEvidence& rank : evidence.ranks) {
    const std::size_t first = rank.log.size() > kLines ? rank.log.size() - kLines : 0;
    for (std::size_t i = first; i < rank.log.size(); ++i)
      fmt::print(stream, "  {} log: {}\n", rank.name, shortened(rank.log[i], kLineBytes));
    if (!rank.output.empty())
      fmt::print(stream, "  {} output: {}\n", rank.name, shortened_lines(rank.output, kLineBytes, kLines));
  }
}

struct FindingRecord {
  const model::Finding& finding;
  const FuzzReport& report;

  std::vector<std::string> steps() const {
    std::vector<std::string> texts;
    for (const model::Step& step : finding.schedule.steps) texts.push_back(model::step_text(finding.schedule, step));
    return texts;
  }
  PLUGFEST_FIELDS(key("message", finding.deviation.what),
                  computed("step", [this] { return text_of_step(finding.schedule, finding.deviation); }),
                  computed("steps", [this] { return steps(); }), key("steps_before", report.steps_before),
                  key("runs", finding.runs), key("failures", finding.failures), key("messages", finding.messages),
                  key("file", report.file), key("again", report.again), key("oracle", report.oracle))
};

// The JSON of fuzz.
struct Document {
  const FuzzReport& report;
  std::optional<FindingRecord> finding;
  PLUGFEST_FIELDS(computed("tool.name", [] { return "plugfest"; }),
                  computed("tool.version", [] { return PLUGFEST_VERSION; }), computed("command", [] { return "fuzz"; }),
                  key("plugin", report.plugin), key("interface", report.interface), key("api", report.api),
                  key("topology", report.topology), key("ranks", report.ranks), key("seed", report.seed),
                  key("seconds", report.seconds), key("schedules", report.schedules), key("messages", report.messages),
                  key("bytes", report.bytes), when(report.stop_signal != 0, key("stop_signal", report.stop_signal)),
                  finding)
};

}  // namespace

std::string oracle_text(const OracleRun& oracle) {
  switch (oracle.result) {
    case OracleRun::Result::kPassed:
      return oracle.name + " passes this schedule: the bug is in the plugin";
    case OracleRun::Result::kFailed:
      return oracle.name + " also fails on this schedule: the bug may be in plugfest: " + oracle.text;
    case OracleRun::Result::kNotRun:
      break;
  }
  return oracle.name + " did not run: " + oracle.text;
}

void print_deviation(std::FILE* stream, const model::Schedule& schedule, const model::Deviation& deviation) {
  fmt::print(stream, "FAIL  {}\n", shortened_lines(deviation.what, kLineBytes, kLines));
  if (const auto step = text_of_step(schedule, deviation)) fmt::print(stream, "  {}\n", *step);
  std::fflush(stream);
}

void print_finding(std::FILE* stream, const FuzzReport& report) {
  const model::Finding& finding = *report.finding;
  if (finding.failures == 0) {
    fmt::print(stream, "  the deviation did not occur again on new ranks within --shrink-seconds\n");
  } else {
    fmt::print(stream, "shrunk to {} of {}; deviates in {} of {}, after {}:\n", finding.schedule.steps.size(),
               counted(report.steps_before, "step"), finding.failures, counted(finding.runs, "run"),
               counted(finding.messages, report.noun()));
    if (!finding.schedule.faults.empty()) fmt::print(stream, "    faults: {}\n", finding.schedule.faults);
    for (const model::Step& step : finding.schedule.steps)
      fmt::print(stream, "    {}\n", model::step_text(finding.schedule, step));
    print_deviation(stream, finding.schedule, finding.deviation);
  }
  print_evidence(stream, finding.deviation.evidence);
  fmt::print(stream, "  again:  {}\n", report.again);
  fmt::print(stream, "  oracle: {}\n", oracle_text(report.oracle));
}

std::string json_of(const FuzzReport& report) {
  Document document{report, {}};
  if (report.finding) document.finding.emplace(FindingRecord{*report.finding, report});
  return wire::json_text(document);
}

}  // namespace plugfest::cli
