// What rules about peers that go away share: sends on their way, and the error that must come of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

/// Errors: `Broken` unless the code is one that NCCL knows, 0 to 6.
void require_known(const control::Outcome& outcome);

/// A rule whose receiver is lost while sends are on their way.
class LostPeer : public RuleBody {
 protected:
  static constexpr std::size_t kMessages = 4, kSize = 4 << 20;

  /// Connects two ranks that no other rule will get; the receiver has posted its receives.
  void connect_ranks(const control::Environment& environment = {});
  /// Isends until the plugin takes one, or answers with an error; nothing when it does neither for long.
  std::optional<control::PointerOutcome> post_send(std::size_t index);
  /// Requires that a test of one of `requests`, oldest first, returns an error in the end, although `what` happened.
  control::Outcome require_error(std::vector<control::Request> requests, std::string_view what);
  /// Posts sends from `first` on until one is refused with an error, or tests those that were taken; the error either
  /// way.
  control::Outcome send_into_the_void(std::string_view what, std::size_t first = 0);
  /// A code that a peer's `loss` is expected to give; others are worth a remark.
  void remark_on(const control::Outcome& outcome, std::string_view loss);

  /// Transports notice by their own timers: longer than a call may take.
  std::chrono::duration<double> notice() const { return 3 * stall_timeout(); }

  std::optional<control::Endpoint> sender_, receiver_;
  std::optional<control::Connection> connection_;
  std::optional<Registered> from_, to_;
  std::vector<control::Request> receives_;
};

}  // namespace plugfest::conformance
