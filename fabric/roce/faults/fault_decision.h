// Decides which faults each packet gets, and holds the packets that are delayed or reordered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/roce/faults/plan.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// A first-in-first-out queue in which each packet has a due time.
/// `Packet`: a packet or batch with a container `bytes`. Not thread-safe; guarded by the NIC's lock.
template <typename Packet>
class DelayQueue {
 public:
  /// Appends a packet that is due at `time`, or together with its predecessor if that is due later. Returns false and
  /// drops the packet if the queue would hold more than 64 MiB.
  bool push(Packet packet, Nanoseconds time) {
    if (bytes_ + packet.bytes.size() > kMaxBytes) return false;
    if (!packets_.empty() && packets_.back().due > time) time = packets_.back().due;
    bytes_ += packet.bytes.size();
    packets_.push_back({std::move(packet), time});
    return true;
  }
  bool empty() const { return packets_.empty(); }

  /// Due time of the first packet; kNever if the queue is empty.
  Nanoseconds due() const { return packets_.empty() ? kNever : packets_.front().due; }
  Packet& front() { return packets_.front().packet; }
  void postpone_front(Nanoseconds time) { packets_.front().due = time; }
  Packet pop_front() {
    Packet packet = std::move(packets_.front().packet);
    bytes_ -= packet.bytes.size();
    packets_.pop_front();
    return packet;
  }

 private:
  static constexpr std::size_t kMaxBytes = 64 << 20;

  struct Entry {
    Packet packet;
    Nanoseconds due;
  };

  std::deque<Entry> packets_;
  std::size_t bytes_ = 0;
};

/// Holds packets until a given number of later packets has overtaken them. Not thread-safe; guarded by the NIC's lock.
template <typename Packet>
class ReorderBuffer {
 public:
  void hold(Packet packet, unsigned later_packets) { held_.push_back({std::move(packet), later_packets}); }
  bool empty() const { return held_.empty(); }

  /// Counts `packets` later packets. Removes and returns the packets that have now been overtaken often enough.
  std::vector<Packet> release(std::size_t packets) {
    std::vector<Packet> released;
    for (std::size_t i = 0; i < held_.size();) {
      if (held_[i].later_packets > packets) {
        held_[i++].later_packets -= static_cast<unsigned>(packets);
        continue;
      }
      released.push_back(std::move(held_[i].packet));
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return released;
  }

 private:
  struct Held {
    Packet packet;
    unsigned later_packets;
  };

  std::vector<Held> held_;
};

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

/// Inverts one bit of `packet`, chosen by `random`, such that the receiver detects an ICRC error. It never inverts a
/// bit that the ICRC does not cover, nor one with the same effect on the ICRC as another IPv4 identification.
/// `packet`: UDP payload from BTH to ICRC, a multiple of 4 bytes.
void corrupt(std::span<std::byte> packet, std::uint64_t random);

}  // namespace plugfest::roce
