// Decides, by seed, what happens to one packet after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/faults/plan.h"

namespace plugfest::roce {

/// What happens to one packet.
struct Fate {
  bool drop = false;
  bool duplicate = false;
  bool corrupt = false;
  unsigned hold = 0;         ///< go when so many later packets have gone; 0: at once
  std::uint64_t choice = 0;  ///< a random number: which bit is inverted

  bool untouched() const { return !drop && !duplicate && !corrupt && hold == 0; }
};

/// The plans for one direction of one device at work. Not thread-safe; guarded by the NIC's lock.
class Fates {
 public:
  Fates(std::string_view device, Direction direction) : device_(device), direction_(direction) {}

  /// From now on these plans hold, those that do not concern this direction left out. One that held before, unchanged,
  /// goes on where its random numbers are; a new one begins by its seed.
  void follow(std::span<const FaultPlan> plans);

  /// Whether next() may give anything but an untouched packet.
  bool touch_packets() const { return touch_packets_; }
  bool delay_packets() const { return delay_packets_; }
  bool any() const { return touch_packets_ || delay_packets_; }

  /// For the next packet.
  Fate next();
  /// How long what goes now takes, jitter included.
  Nanoseconds next_delay();

 private:
  struct Active {
    FaultPlan plan;
    std::mt19937_64 random;
  };

  const std::string device_;
  const Direction direction_;
  std::vector<Active> active_;
  bool touch_packets_ = false;
  bool delay_packets_ = false;
};

/// Inverts one bit that `choice` picks, such that the ICRC tells: none of the byte that it does not cover, and none
/// that looks like another IPv4 identification. `packet`: UDP payload, BTH to ICRC, a multiple of 4 bytes.
void corrupt(std::span<std::byte> packet, std::uint64_t choice);

}  // namespace plugfest::roce
