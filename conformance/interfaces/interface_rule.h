// Bases of the rules of all interfaces but the net.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/rules/rule_body.h"
#include "harness/control/one_sided.h"

namespace plugfest::conformance {

/// Base of rules about a plugin after init.
class InterfaceRule : public RuleBody {
 protected:
  /// Errors: `NotApplicable` if init fails: NCCL then continues without the interface.
  Rank ready_rank(std::size_t number = 0);
  /// Errors: whatever ready_rank() throws; `NotApplicable` if the plugin has no device.
  Rank rank_with_devices(std::size_t number = 0);
  /// All ranks of the rule, with devices.
  std::vector<Rank> all_ranks();
  /// Requires usable symbols of the interface, and a name and all required functions in the table of `rank`. Errors:
  /// `Broken`.
  void require_table(Rank& rank);
  /// Calls `end` for contexts in a random order until `left` remain. A context is no longer in `contexts` then.
  void end_all_but(std::size_t left, std::vector<std::uint64_t>& contexts,
                   const std::function<void(std::uint64_t)>& end);
};

/// Base of the rules about GIN and RMA: connects the ranks.
class OneSidedRule : public InterfaceRule {
 protected:
  /// All ranks of the rule. Errors: whatever all_ranks() throws; `NotApplicable` if the version has no data calls.
  std::vector<Rank> ranks_with_data();
  OneSidedGroup connected(const OneSidedOptions& options = {}) { return OneSidedGroup(ranks_with_data(), options); }
  /// The number of requests to one rank that NCCL keeps in flight, at most 1024.
  static std::size_t most_requests(OneSidedGroup& group);
};

/// Errors: `Broken` if the bytes differ. `what`: "a put of 8 bytes".
void require_same(const Check& check, const std::string& what);

}  // namespace plugfest::conformance
