// Decides which faults each packet gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/faults/plan.h"

namespace plugfest::roce {

/// The faults of one packet, apart from delay.
struct FaultDecision {
  bool loss = false;
  bool duplicate = false;
  bool corrupt = false;
  unsigned overtaken_by = 0;  ///< number of later packets to send or deliver before this one
  std::uint64_t random = 0;   ///< chooses the bit that `corrupt` inverts

  bool none() const { return !loss && !duplicate && !corrupt && overtaken_by == 0; }
};

/// Makes random decisions for the packets of one device in one direction. The seeds of the plans make them repeatable.
/// Not thread-safe; guarded by the NIC's lock.
class FaultDecider {
 public:
  FaultDecider(std::string_view device, Direction direction) : device_(device), direction_(direction) {}

  /// Replaces the active plans; plans for other devices or directions are ignored. A plan that was active before
  /// continues its random sequence; a new plan starts from its seed.
  void set_plans(std::span<const FaultPlan> plans);

  /// True if next() may return a fault.
  bool alters_packets() const { return alters_packets_; }
  /// True if next_delay() may return more than 0.
  bool delays_packets() const { return delays_packets_; }
  bool any() const { return alters_packets_ || delays_packets_; }

  FaultDecision next();
  /// Delay of the next packet or batch, jitter included.
  Nanoseconds next_delay();

 private:
  struct Active {
    FaultPlan plan;
    std::mt19937_64 random;
  };

  const std::string device_;
  const Direction direction_;
  std::vector<Active> active_;
  bool alters_packets_ = false;
  bool delays_packets_ = false;
};

/// Inverts one bit of `packet`, chosen by `random`, such that the receiver detects an ICRC error: never a bit that the
/// ICRC does not cover, and never one whose effect on the ICRC equals that of another IPv4 identification.
/// `packet`: UDP payload from BTH to ICRC, a multiple of 4 bytes.
void corrupt(std::span<std::byte> packet, std::uint64_t random);

}  // namespace plugfest::roce
