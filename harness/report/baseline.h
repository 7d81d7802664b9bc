// Comparison of results with known findings, and with an earlier results.json.
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

/// A rule whose verdict changed, or that only one of the two documents has.
struct Change {
  std::string subject;  ///< "Mesh v12"; "Mesh v12 and foo v12" for two plugins
  std::string rule;
  std::string title;
  std::optional<Verdict> before;  ///< nothing: the rule is only in the second document
  std::optional<Verdict> after;   ///< nothing: only in the first
  std::string message;            ///< message of the later result
  enum class Kind { kWorse, kBetter, kOther } kind = Kind::kOther;
};

/// The changes from one results.json to another.
struct Comparison {
  std::vector<Change> changes;     ///< worse ones first, otherwise in the order of the rules
  std::vector<std::string> alone;  ///< subjects of only one document: "only in the first: foo v8"
  std::size_t compared = 0;        ///< number of rules that both contain

  bool any_worse() const;
};

/// Compares runs of the same plugin and version; if there are several, the n-th with the n-th. If each document has
/// runs of one plugin only, compares their versions although the plugins have different names.
Comparison compare(const Document& before, const Document& after);

std::string describe(const Comparison& comparison);

}  // namespace plugfest::report
