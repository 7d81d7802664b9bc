// Bases of the rules of CollNet, GIN and RMA.
#pragma once

#include <string>
#include <vector>

#include "conformance/rules/rule_body.h"
#include "harness/control/one_sided.h"

namespace plugfest::conformance {

/// Base of rules about a plugin after init.
class InterfaceRule : public RuleBody {
 protected:
  /// Errors: `NotApplicable` if init fails: NCCL then goes on without the interface.
  Rank ready_rank(std::size_t number = 0);
  /// Errors: `NotApplicable` also if there is no device.
  Rank rank_with_devices(std::size_t number = 0);
  /// All ranks of the rule, with devices.
  std::vector<Rank> all_ranks();
};

/// The same, for GIN and RMA.
class OneSidedRule : public InterfaceRule {
 protected:
  OneSidedGroup connected(const OneSidedOptions& options = {}) { return OneSidedGroup(all_ranks(), options); }
};

/// Errors: `Broken` if the bytes differ. `what`: "a put of 8 bytes".
void require_same(const Check& check, const std::string& what);

}  // namespace plugfest::conformance
