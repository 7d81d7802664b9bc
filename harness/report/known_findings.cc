#include "harness/report/known_findings.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <stdexcept>

#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

constexpr std::string_view kForm = "expected findings: and below it a list of rule, subject, reason and optionally expires";

bool is_day(const std::string& text) {
  if (text.size() != 10) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 4 || i == 7 ? text[i] != '-' : text[i] < '0' || text[i] > '9') return false;
  }
  return "01" <= text.substr(5, 2) && text.substr(5, 2) <= "12" && "01" <= text.substr(8) && text.substr(8) <= "31";
}

std::string location_of(const std::filesystem::path& path, const YAML::Mark& mark) {
  return mark.is_null() ? path.string() : fmt::format("{}:{}", path.string(), mark.line + 1);
}

KnownFinding read_finding(const YAML::Node& node, const std::string& location) {
  if (!node.IsMap()) throw std::runtime_error(fmt::format("{}: {}", location, kForm));
  KnownFinding finding;
  finding.location = location;
  for (const auto& field : node) {
    const std::string name = field.first.Scalar();
    std::string* const target = name == "rule"      ? &finding.rule
                                : name == "subject" ? &finding.subject
                                : name == "reason"  ? &finding.reason
                                : name == "expires" ? &finding.expires
                                                    : nullptr;
    if (target == nullptr) {
      throw std::runtime_error(
          fmt::format("{}: unknown field \"{}\": there are rule, subject, reason, expires", location, name));
    }
    *target = field.second.IsScalar() ? field.second.Scalar() : std::string();
  }
  for (const auto& [name, value] :
       {std::pair("rule", finding.rule), std::pair("subject", finding.subject), std::pair("reason", finding.reason)}) {
    if (value.empty()) throw std::runtime_error(fmt::format("{}: a finding needs {}", location, name));
  }
  if (!finding.expires.empty() && !is_day(finding.expires)) {
    throw std::runtime_error(
        fmt::format("{}: expires \"{}\": expected a day such as 2027-03-31", location, finding.expires));
  }
  return finding;
}

}  // namespace

KnownFindings KnownFindings::read(const std::filesystem::path& path) {
  try {
    const YAML::Node root = YAML::LoadFile(path.string());
    const YAML::Node list = root.IsMap() ? root["findings"] : YAML::Node(YAML::NodeType::Undefined);
    if (!list.IsDefined() || !list.IsSequence()) throw std::runtime_error(fmt::format("{}: {}", path.string(), kForm));
    std::vector<KnownFinding> findings;
    for (const YAML::Node& node : list) findings.push_back(read_finding(node, location_of(path, node.Mark())));
    return KnownFindings(std::move(findings));
  } catch (const YAML::BadFile&) {
    throw std::runtime_error(fmt::format("{}: cannot read the known findings", path.string()));
  } catch (const YAML::Exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", location_of(path, error.mark), error.msg));
  }
}

KnownFindings KnownFindings::about(const std::string& plugin_path, const std::string& plugin_name) const {
  const std::string file_name = std::filesystem::path(plugin_path).filename().string();
  const std::array names = {plugin_name, plugin_path, file_name};
  KnownFindings about_plugin;
  for (const KnownFinding& finding : findings_) {
    const bool matches = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return fnmatch(finding.subject.c_str(), name.c_str(), 0) == 0;
    });
    if (matches) about_plugin.findings_.push_back(finding);
  }
  return about_plugin;
}

void KnownFindings::apply(RuleResult& result, const std::string& today) const {
  for (const KnownFinding& finding : findings_) {
    if (finding.rule != result.id) continue;
    if (result.verdict == Verdict::kPass) {
      result.known = fmt::format("passes although {} expects it to fail: remove that finding", finding.location);
      return;
    }
    if (!is_broken(result.verdict)) return;
    if (finding.expires.empty() || finding.expires >= today) {
      result.known = fmt::format("known finding: {} ({})", finding.reason, finding.location);
      result.verdict = Verdict::kWaived;
      return;
    }
    result.known =
        fmt::format("no longer waived, {} expired on {}: {}", finding.location, finding.expires, finding.reason);
  }
}

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm day{};
  gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

}  // namespace plugfest::report
