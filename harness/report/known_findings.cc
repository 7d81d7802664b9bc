#include "harness/report/known_findings.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "fabric/system/text.h"
#include "fabric/system/yaml_file.h"
#include "harness/report/text.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

bool is_day(const std::string& text) {
  if (text.size() != 10) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (i == 4 || i == 7 ? text[i] != '-' : text[i] < '0' || text[i] > '9') return false;
  return "01" <= text.substr(5, 2) && text.substr(5, 2) <= "12" && "01" <= text.substr(8) && text.substr(8) <= "31";
}

class File : YamlFile {
 public:
  explicit File(const std::filesystem::path& path) : YamlFile("known findings", path) {}

  std::vector<KnownFinding> read() {
    const YAML::Node root = load();
    require_map(root, "known findings");
    require_known(root, "known findings", {"findings"});
    std::vector<KnownFinding> findings;
    for (const YAML::Node& node : list(root, "known findings", "findings")) findings.push_back(read_finding(node));
    return findings;
  }

 private:
  KnownFinding read_finding(const YAML::Node& node) const {
    require_map(node, "finding");
    require_known(node, "finding", {"rule", "subject", "reason", "expires", "seldom"});
    KnownFinding finding;
    finding.rule = text(required(node, "finding", "rule"), "rule");
    finding.subject = text(required(node, "finding", "subject"), "subject");
    finding.reason = text(required(node, "finding", "reason"), "reason");
    if (const YAML::Node expires = node["expires"]) finding.expires = text(expires, "expires");
    if (!finding.expires.empty() && !is_day(finding.expires))
      fail(node["expires"], fmt::format("expires \"{}\": expected a day such as 2027-03-31", finding.expires));
    if (const YAML::Node seldom = node["seldom"]) {
      finding.seldom = text(seldom, "seldom") == "true";
      if (!finding.seldom)
        fail(seldom, fmt::format("seldom \"{}\": expected true, or no such field", scalar(seldom, "seldom")));
    }
    finding.location = location(node);
    return finding;
  }

  std::string text(const YAML::Node& node, std::string_view what) const {
    std::string value = scalar(node, what);
    if (value.empty()) fail(node, fmt::format("{}: must not be empty", what));
    return value;
  }
};

}  // namespace

KnownFindings KnownFindings::read(const std::filesystem::path& path) { return KnownFindings(File(path).read()); }

void KnownFindings::require_rules(const std::vector<std::string>& ids) const {
  for (const KnownFinding& finding : findings_) {
    if (std::find(ids.begin(), ids.end(), finding.rule) != ids.end()) continue;
    throw std::runtime_error(fmt::format("known findings {}: no rule \"{}\": {}", finding.location, finding.rule,
                                         suggestion(finding.rule, ids)));
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
      if (finding.seldom) return;
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
