// Broken rules that the user accepts: their rules get the verdict "waived".
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/results.h"
#include "harness/wire/fields.h"

namespace plugfest::report {

/// A broken rule that is accepted for a plugin.
struct KnownFinding {
  /// "DP-04".
  std::string rule;
  /// The plugin: its own name ("Socket"), the library's path or file name, or "nccl:Socket". May contain '*' and '?'.
  std::string subject;
  std::string reason;
  /// Last day on which it applies, "2027-03-31" (UTC). Empty: it never expires.
  std::string expires;
  /// The position of its declaration, for messages: "known.yaml:3".
  std::string location;
  /// The rule passes in most runs, so that a pass does not mean that the finding is obsolete.
  bool seldom = false;
  PLUGFEST_FIELDS(rule, subject, reason, expires)
};

/// The known findings of a file. Thread safety: const functions may be called from any thread.
class KnownFindings {
 public:
  KnownFindings() = default;
  explicit KnownFindings(std::vector<KnownFinding> findings) : findings_(std::move(findings)) {}

  /// Reads YAML, or JSON, which is YAML:
  ///
  ///     findings:
  ///       - rule: DP-04
  ///         subject: nccl:Socket
  ///         reason: vProps stays unwritten up to NCCL 2.28
  ///         expires: 2027-03-31
  ///
  /// `expires` is optional, and so is `seldom: true`. Errors: std::runtime_error "known findings known.yaml:4: …".
  static KnownFindings read(const std::filesystem::path& path);

  /// Refuses findings about rules that are not among `ids`. Errors: std::runtime_error with file, line and a
  /// suggestion.
  void require_rules(const std::vector<std::string>& ids) const;

  /// Returns the findings about one plugin. `plugin_path`: a file, or "nccl:Socket". `plugin_name`: its own name.
  KnownFindings about(const std::string& plugin_path, const std::string& plugin_name) const;

  /// Changes the verdict of a broken rule to waived if a finding about it has not expired by `today`, "2026-11-21".
  /// Sets `result.known` to a text about the findings, even if the rule passes unexpectedly.
  void apply(RuleResult& result, const std::string& today) const;

  const std::vector<KnownFinding>& all() const { return findings_; }

 private:
  std::vector<KnownFinding> findings_;
};

/// Returns the current day in UTC: "2026-11-21".
std::string today();

}  // namespace plugfest::report
