#include "harness/report/formats/junit.h"

#include <fmt/format.h>

#include <string_view>

#include "harness/report/cause.h"
#include "harness/report/formats/markup.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

/// `shared`: the group of rules with the same cause; null if there is none.
std::string element(const RuleResult& rule, const CauseGroup* shared) {
  const std::string tag = [&] {
    switch (rule.verdict) {
      case Verdict::kFail:
      case Verdict::kCrash:
      case Verdict::kTimeout:
        return "failure";
      case Verdict::kError:
      case Verdict::kMissing:
        return "error";
      case Verdict::kSkip:
      case Verdict::kNotApplicable:
      case Verdict::kWaived:
        return "skipped";
      case Verdict::kPass:
      case Verdict::kWarn:
      case Verdict::kInfo:
        break;
    }
    return "";
  }();
  const std::string message =
      rule.known.empty() ? rule.message : rule.known + (rule.message.empty() ? "" : "\n" + rule.message);
  std::string inside;
  const std::string cause = shared == nullptr ? "" : "\ncause: " + shared->headline();
  if (!tag.empty()) {
    const std::string type = tag == "skipped" ? "" : fmt::format(" type=\"{}\"", text(rule.verdict));
    inside = fmt::format("      <{} message=\"{}\"{}>{}</{}>\n", tag, escaped(first_line(message)), type,
                         escaped(message + cause + (tag == "skipped" ? "" : "\nagain: " + rule.rerun)), tag);
  } else if (!message.empty()) {
    inside =
        fmt::format("      <system-out>{}</system-out>\n", escaped(fmt::format("{}: {}", text(rule.verdict), message)));
  }
  return fmt::format("    <testcase classname=\"plugfest.{}\" name=\"{} {}\" time=\"{:.3f}\">\n{}    </testcase>\n",
                     rule.id.substr(0, rule.id.find('-')), rule.id, escaped(rule.title), rule.seconds, inside);
}

std::string property(std::string_view name, std::string_view value) {
  return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name, escaped(value));
}

/// A suite with one case, so that a deviation of NCCL's loader fails the JUnit result too.
std::string loader_suite(const Loader& loader) {
  const bool good = loader.deviation.empty();
  const std::string inside =
      good ? fmt::format("      <system-out>{}</system-out>\n", escaped(describe(loader)))
           : fmt::format("      <failure message=\"{}\" type=\"fail\">{}</failure>\n", escaped(loader.deviation),
                         escaped(loader.deviation + "\n" + loader.log));
  return fmt::format(
      "  <testsuite name=\"NCCL's loader\" tests=\"1\" failures=\"{}\" errors=\"0\" skipped=\"0\">\n"
      "    <testcase classname=\"plugfest.loader\" name=\"NCCL selects the newest version that it knows, initialises "
      "and finalizes it\">\n{}    </testcase>\n  </testsuite>\n",
      good ? 0 : 1, inside);
}

}  // namespace

std::string to_junit(const Document& document) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"plugfest\">\n";
  if (document.loader) out += loader_suite(*document.loader);
  for (const Run& run : document.runs) {
    const std::vector<CauseGroup> causes = group_by_cause(run.rules);
    std::string cases;
    std::size_t failures = 0, errors = 0, skipped = 0;
    for (const RuleResult& rule : run.rules) {
      const std::string one = element(rule, shared_cause(causes, rule));
      failures += one.find("<failure ") != std::string::npos;
      errors += one.find("<error ") != std::string::npos;
      skipped += one.find("<skipped ") != std::string::npos;
      cases += one;
    }
    out += fmt::format(
        "  <testsuite name=\"{} v{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n",
        escaped(run.plugin_name), run.api, run.rules.size(), failures, errors, skipped, run.seconds);
    out += "    <properties>\n" + property("plugin", run.plugin_path) + property("api", fmt::format("v{}", run.api)) +
           property("version", document.version) + property("kernel", document.environment.kernel) +
           property("nic", document.environment.nic) + property("topology", document.environment.topology) +
           property("seed", fmt::format("{}", run.seed)) + "    </properties>\n" + cases + "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace plugfest::report
