// Packets that a fault reorders.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace plugfest::roce {

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

}  // namespace plugfest::roce
