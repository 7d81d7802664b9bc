// What changed from an earlier results.json.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

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
