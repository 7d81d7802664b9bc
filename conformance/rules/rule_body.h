// What the code of a rule sees: its ranks, its random numbers, and the words to say what it found.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "conformance/rules/findings.h"
#include "conformance/rules/rule.h"
#include "harness/control/session.h"
#include "harness/faults/injector.h"

namespace plugfest::conformance {

/// Two ranks whose NICs reach each other, by name: "a.eth0" and "b.eth0".
struct RulePath {
  std::string near;
  std::string far;
};

/// Where a rule runs. `lease` is null in tests of rules that need no rank.
struct Stage {
  control::Lease* lease = nullptr;
  RulePath path;
  control::Limits limits;
  /// The library's file; empty for a transport built into NCCL.
  std::string library;
  /// Version of the net interface under test.
  int api = 0;
  /// Breaks and mends the network; null where that cannot be done.
  faults::Injector* injector = nullptr;
};

/// Base of every rule's code. One object serves one run of one rule, on one thread.
class RuleBody {
 public:
  virtual ~RuleBody() = default;
  /// The clause, step by step. Returning means that it holds; `Broken`, `NotApplicable`, `Skipped` and the exceptions
  /// of harness/control say otherwise.
  virtual void run() = 0;

  void enter(const Stage& stage, std::uint64_t seed) {
    stage_ = stage;
    random_.seed(seed);
  }
  const Remarks& remarks() const { return remarks_; }

 protected:
  /// The endpoints of the rule's path. The plugin is loaded and initialised unless `options` says otherwise.
  control::Endpoint near_endpoint(const control::RankOptions& options = {}) {
    return stage_.lease->endpoint(stage_.path.near, options);
  }
  control::Endpoint far_endpoint(const control::RankOptions& options = {}) {
    return stage_.lease->endpoint(stage_.path.far, options);
  }
  /// The near endpoint's rank, for rules about the plugin rather than a device.
  control::Rank near_rank(const control::RankOptions& options = {}) { return stage_.lease->rank(stage_.path.near, options); }
  /// The far endpoint's rank, for such a rule that needs a second process.
  control::Rank far_rank(const control::RankOptions& options = {}) { return stage_.lease->rank(stage_.path.far, options); }

  /// The far rank's interface goes down, for as long as the result lives, and the near one's loses its carrier if they
  /// are cabled to each other. Skips the rule where the network cannot be broken.
  faults::ActiveFault take_link_down();
  /// The far rank's interface gets another address of its subnet, and its NIC another GID; as above. Null where the
  /// subnet has none to spare.
  std::unique_ptr<faults::ActiveFault> change_far_address();

  const Stage& stage() const { return stage_; }
  int api() const { return stage_.api; }
  /// Operations that make no progress for this long count as stalled.
  std::chrono::duration<double> stall_timeout() const {
    return std::chrono::duration<double>(stage_.limits.call_seconds);
  }

  /// Random numbers that depend on the run's seed and the rule's id alone.
  std::mt19937_64& random() { return random_; }
  /// Uniform in first..last, both included; equal on every C++ library.
  std::uint64_t random_between(std::uint64_t first, std::uint64_t last) {
    return first + random_() % (last - first + 1);
  }

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
  Stage stage_;
  std::mt19937_64 random_;
  Remarks remarks_;
};

}  // namespace plugfest::conformance
