// Packets that a fault delays.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

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

}  // namespace plugfest::roce
