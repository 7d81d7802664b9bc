// Faults that the NIC makes on purpose in what it sends, for tests: packets dropped, duplicated, reordered, corrupted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

namespace plugfest::roce {

/// What to do with the packets, as probabilities between 0 and 1.
struct FaultPlan {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;  ///< held back until one to four later packets have gone
  double corrupt = 0;  ///< one bit inverted
  std::uint64_t seed = 1;

  bool any() const { return drop > 0 || duplicate > 0 || reorder > 0 || corrupt > 0; }
};

/// Reads "drop=1%,reorder=0.5%,seed=7"; probabilities as percentages or plain numbers. An empty text is no faults.
/// Errors: std::runtime_error that names the word it does not understand.
FaultPlan parse_faults(std::string_view text);

/// Decides for one packet after the other, repeatably by seed. Not thread-safe.
class Faults {
 public:
  explicit Faults(const FaultPlan& plan) : plan_(plan), random_(plan.seed) {}

  /// Calls `send(bytes)` for the packet as often as it shall go out, and for earlier ones that were held back.
  /// Returns the number of faults made.
  unsigned pass(std::vector<std::byte> packet, const std::function<void(const std::vector<std::byte>&)>& send);

 private:
  struct Held {
    std::vector<std::byte> packet;
    unsigned until_later_packets;
  };

  bool chance(double probability) { return std::uniform_real_distribution<double>(0, 1)(random_) < probability; }

  FaultPlan plan_;
  std::mt19937_64 random_;
  std::vector<Held> held_;
};

}  // namespace plugfest::roce
