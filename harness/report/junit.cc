#include "harness/report/junit.h"

#include <fmt/format.h>

#include <string_view>

#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

/// Length of the well-formed UTF-8 sequence at the start of `text`; 0 when there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 && first <= 0xf4  ? 4
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xc2 && first < 0xe0 ? 2
                                                             : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool beyond = (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  return overlong || beyond ? 0 : length;
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      out += '?';
    } else if (length > 1) {
      out += text.substr(0, length);
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\n') {
      out += "&#10;";
    } else {
      out += static_cast<unsigned char>(c) >= 0x20 || c == '\t' ? c : '?';
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string element(const RuleResult& rule) {
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
  if (!tag.empty()) {
    const std::string type = tag == "skipped" ? "" : fmt::format(" type=\"{}\"", text(rule.verdict));
    inside = fmt::format("      <{} message=\"{}\"{}>{}</{}>\n", tag, escaped(first_line(message)), type,
                         escaped(message + (tag == "skipped" ? "" : "\nagain: " + rule.rerun)), tag);
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

}  // namespace

std::string to_junit(const Document& document) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"plugfest\">\n";
  for (const Run& run : document.runs) {
    std::string cases;
    std::size_t failures = 0, errors = 0, skipped = 0;
    for (const RuleResult& rule : run.rules) {
      const std::string one = element(rule);
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
