// How much a queue pair may have in flight: slow start, then additive increase; less on a loss.
#pragma once

#include <algorithm>
#include <cstdint>

namespace plugfest::roce {

/// Counts in bytes, with a fixed addition per packet that stands for what the receiver's kernel needs to hold it.
class Window {
 public:
  static constexpr std::uint64_t kPacketOverheadBytes = 512;
  static constexpr std::uint64_t kSmallestBytes = 4 * 1024;

  /// Begins anew. `largest_bytes`: what a receiver's buffer surely holds, or more where losses will tell.
  void reset(std::uint64_t path_mtu_bytes, std::uint64_t largest_bytes) {
    step_ = path_mtu_bytes + kPacketOverheadBytes;
    largest_ = largest_bytes;
    threshold_ = largest_bytes;
    bytes_ = std::min(largest_bytes, kInitialBytes);
  }

  std::uint64_t bytes() const { return bytes_; }

  void acknowledged(std::uint64_t bytes) {
    if (bytes_ < threshold_) {
      bytes_ += bytes;
    } else {
      bytes_ += std::max<std::uint64_t>(1, kPacketsARoundTrip * step_ * bytes / bytes_);
    }
    bytes_ = std::min(bytes_, largest_);
  }

  /// Some packet was lost, others arrived.
  void lost() {
    threshold_ = std::max(bytes_ * 7 / 10, smallest());
    bytes_ = threshold_;
  }

  /// Nothing came back at all.
  void timed_out() {
    threshold_ = std::max(bytes_ / 2, smallest());
    bytes_ = smallest();
  }

 private:
  static constexpr std::uint64_t kInitialBytes = 128 * 1024;

  // Grows faster and gives way less than TCP does: with one packet and one half it has 12 packets in flight where one
  // in a hundred is lost for no congestion; with these, 24.
  static constexpr std::uint64_t kPacketsARoundTrip = 2;

  std::uint64_t smallest() const { return std::max(kSmallestBytes, 2 * step_); }

  std::uint64_t step_ = 0;
  std::uint64_t largest_ = 0;
  std::uint64_t threshold_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace plugfest::roce
