// What the body of a rule reports: exceptions that end it, and remarks.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace plugfest::conformance {

/// The clause does not hold. `what()` is for the user: what was expected and what happened.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The clause does not apply to this subject: for example, it has no grouped receives. `what()` is the reason.
class NotApplicable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The clause cannot be checked on this test bed. `what()` is the reason.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Remarks that do not end a body.
struct Remarks {
  /// Parts of the clause that are only [S] and do not hold.
  std::vector<std::string> weaknesses;
  /// Behaviour that the contract leaves to the plugin.
  std::vector<std::string> observations;
};

}  // namespace plugfest::conformance
