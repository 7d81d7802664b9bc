// Known findings: broken rules that somebody has looked into and lives with, each with its reason and, maybe, an end.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

struct Finding {
  /// "DP-04".
  std::string rule;
  /// Whose: the plugin's own name ("Socket"), the library's path or file name, or "nccl:Socket"; '*' and '?' match.
  std::string subject;
  std::string reason;
  /// Last day on which it counts, "2027-03-31" (UTC); empty: no end.
  std::string expires;
  /// "known.yaml:3", for messages.
  std::string place;
};

/// The findings of a file. Thread safety: const functions from any thread.
class KnownFindings {
 public:
  KnownFindings() = default;
  explicit KnownFindings(std::vector<Finding> findings) : findings_(std::move(findings)) {}

  /// Reads YAML, or JSON, which is YAML:
  ///
  ///     findings:
  ///       - rule: DP-04
  ///         subject: nccl:Socket
  ///         reason: vProps stays unwritten up to NCCL 2.28
  ///         expires: 2027-03-31
  ///
  /// `expires` may be left out. Errors: std::runtime_error "known.yaml:4: …".
  static KnownFindings read(const std::filesystem::path& path);

  /// Weighs a result of `run` again, `today` being "2026-11-21": a broken rule that is known becomes waived, unless the
  /// finding has expired; `known` says what was found in the file, also when the rule passed against expectation.
  void apply(RuleResult& result, const Run& run, const std::string& today) const;

  const std::vector<Finding>& all() const { return findings_; }

 private:
  std::vector<Finding> findings_;
};

/// Today in UTC: "2026-11-21".
std::string today();

}  // namespace plugfest::report
