// Fault plans: which faults a NIC injects, as text such as "loss=1%,delay=50us,seed=7".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Packets that the NIC sends, packets that it receives, or both.
enum class Direction : std::uint8_t { kOut, kIn, kBoth };

/// The faults of a device in one or both directions. Probabilities are between 0 and 1.
///
/// Several plans may apply to the same packets: each decides independently, and their delays add up.
struct FaultPlan {
  std::string device = {};  ///< "roce_eth0"; empty: every device
  Direction direction = Direction::kOut;
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;      ///< probability that one to four later packets overtake the packet
  double corrupt = 0;      ///< probability that one bit covered by the ICRC is inverted
  Nanoseconds delay = 0;   ///< added to every packet; at most 10 s
  Nanoseconds jitter = 0;  ///< maximum of a uniformly distributed extra delay; packets stay in order
  std::uint64_t seed = 1;

  bool any() const { return loss > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay > 0 || jitter > 0; }
  /// True if the plan has faults for packets that device `name` sends (kOut) or receives (kIn).
  bool concerns(std::string_view name, Direction which) const {
    return any() && (device.empty() || device == name) && (direction == Direction::kBoth || direction == which);
  }
  bool operator==(const FaultPlan&) const = default;
};

/// Parses one plan: fields "name=value", separated by commas or blanks. The names are those of FaultPlan. Values:
/// probabilities as 1% or 0.01, times as 50us, 0.5ms or 1s, direction as out, in or both. Empty text: no faults.
/// Errors: std::runtime_error "FIELD: expected …"; the caller adds the location.
FaultPlan parse_faults(std::string_view text);

/// Formats a plan such that parse_faults() returns the same plan: "direction=in,delay=50us,seed=7". No faults: "".
std::string text_of(const FaultPlan& plan);

}  // namespace plugfest::roce
