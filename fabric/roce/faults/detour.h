// Where packets wait that do not go at once: held back for later ones to overtake, or late.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "fabric/system/clock.h"

namespace plugfest::roce {

/// `Parcel`: one packet or a batch, with `bytes` (a container) and what is needed to send it on its way.
/// Not thread-safe; guarded by the NIC's lock.
template <typename Parcel>
class Detour {
 public:
  // --- held back ---

  void hold(Parcel parcel, unsigned later_packets) { held_.push_back({std::move(parcel), later_packets}); }
  bool holds() const { return !held_.empty(); }

  /// Some packets have gone. Takes out what was held back for them.
  std::vector<Parcel> overtaken_by(std::size_t packets) {
    std::vector<Parcel> due;
    for (std::size_t i = 0; i < held_.size();) {
      if (held_[i].later_packets > packets) {
        held_[i++].later_packets -= static_cast<unsigned>(packets);
        continue;
      }
      due.push_back(std::move(held_[i].parcel));
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return due;
  }

  // --- late ---

  /// Lets it wait until `time`, or until what was put in before it has gone, if that is later. False, and it is
  /// dropped, when as many bytes wait as a long link holds.
  bool delay(Parcel parcel, Nanoseconds time) {
    if (late_bytes_ + parcel.bytes.size() > kMostLateBytes) return false;
    if (!late_.empty() && late_.back().time > time) time = late_.back().time;
    late_bytes_ += parcel.bytes.size();
    late_.push_back({std::move(parcel), time});
    return true;
  }
  bool late() const { return !late_.empty(); }

  /// When the first one is due; kNever if none waits.
  Nanoseconds due() const { return late_.empty() ? kNever : late_.front().time; }
  Parcel& first() { return late_.front().parcel; }
  /// Puts the first one off.
  void put_off(Nanoseconds time) { late_.front().time = time; }
  Parcel take_first() {
    Parcel parcel = std::move(late_.front().parcel);
    late_bytes_ -= parcel.bytes.size();
    late_.pop_front();
    return parcel;
  }

 private:
  static constexpr std::size_t kMostLateBytes = 64 << 20;

  struct Held {
    Parcel parcel;
    unsigned later_packets;
  };
  struct Late {
    Parcel parcel;
    Nanoseconds time;
  };

  std::vector<Held> held_;
  std::deque<Late> late_;
  std::size_t late_bytes_ = 0;
};

}  // namespace plugfest::roce
