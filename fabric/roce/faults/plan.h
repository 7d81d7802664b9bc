// Faults that a NIC makes on purpose, in the words that people write: "drop=1%,delay=50us,seed=7".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Which packets of a NIC: those it sends, those that arrive, or both.
enum class Direction : std::uint8_t { kOut, kIn, kBoth };

/// What happens to the packets of a device in a direction. Probabilities are between 0 and 1.
///
/// Several plans for the same packets add up: each decides for itself, delays are summed.
struct FaultPlan {
  std::string device = {};  ///< "roce_eth0"; empty: every device
  Direction direction = Direction::kOut;
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;      ///< held back until one to four later packets have gone
  double corrupt = 0;      ///< one bit inverted, one that the ICRC covers
  Nanoseconds delay = 0;   ///< of every packet; at most 10 s
  Nanoseconds jitter = 0;  ///< up to this much more, evenly spread; packets stay in order
  std::uint64_t seed = 1;

  bool any() const { return drop > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay > 0 || jitter > 0; }
  /// Whether it holds for packets that `name` sends (kOut) or receives (kIn).
  bool concerns(std::string_view name, Direction which) const {
    return any() && (device.empty() || device == name) && (direction == Direction::kBoth || direction == which);
  }
  bool operator==(const FaultPlan&) const = default;
};

/// Reads one plan: words "name=value" with commas or blanks between them. Names as in FaultPlan; probabilities as 1% or
/// 0.01, times as 50us, 0.5ms or 1s, direction out, in or both. An empty text is no faults. Errors: std::runtime_error
/// that quotes the word and says what was expected, for the caller to put the place before it.
FaultPlan parse_faults(std::string_view text);

/// The words that parse_faults() reads back to the same plan: "direction=in,delay=50us,seed=7". No faults: "".
std::string text_of(const FaultPlan& plan);

}  // namespace plugfest::roce
