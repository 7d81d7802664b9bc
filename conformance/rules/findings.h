// What one run of a rule's body found, before it is weighed into a verdict.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace plugfest::conformance {

/// Thrown by a body: the clause does not hold. `what()` is what the user reads: expected, got.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown by a body: the clause does not speak of this subject (no grouped receives, say).
class NotApplicable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown by a body: the clause could not be checked here; `what()` is the reason.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Remarks that do not end a body.
struct Remarks {
  /// Parts of the clause that are only [S] and do not hold.
  std::vector<std::string> weaknesses;
  /// What was seen where the contract leaves a choice.
  std::vector<std::string> observations;
};

}  // namespace plugfest::conformance
