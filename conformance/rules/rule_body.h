// What the code of a rule sees: its ranks, its random numbers, and the words to say what it found.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "conformance/rules/findings.h"
#include "conformance/rules/rule.h"

namespace plugfest::conformance {

/// Base of every rule's code. One object serves one run of one rule, on one thread.
class RuleBody {
 public:
  virtual ~RuleBody() = default;
  /// The clause, step by step. Returning means that it holds; `Broken`, `NotApplicable`, `Skipped` and the exceptions
  /// of harness/control say otherwise.
  virtual void run() = 0;

  void seed(std::uint64_t value) { random_.seed(value); }
  const Remarks& remarks() const { return remarks_; }

 protected:
  /// Random numbers that depend on the run's seed and the rule's id alone.
  std::mt19937_64& random() { return random_; }

  [[noreturn]] void broken(const std::string& message) { throw Broken(message); }
  [[noreturn]] void not_applicable(const std::string& reason) { throw NotApplicable(reason); }
  [[noreturn]] void skip(const std::string& reason) { throw Skipped(reason); }

  /// Ends the rule as broken unless `holds`.
  void expect(bool holds, const std::string& message) {
    if (!holds) broken(message);
  }
  /// A part of the clause that is only [S]: remembered, and the body goes on.
  void should(bool holds, const std::string& message) {
    if (!holds) remarks_.weaknesses.push_back(message);
  }
  /// Something worth reporting that is neither right nor wrong.
  void observe(const std::string& message) { remarks_.observations.push_back(message); }

 private:
  std::mt19937_64 random_;
  Remarks remarks_;
};

}  // namespace plugfest::conformance
