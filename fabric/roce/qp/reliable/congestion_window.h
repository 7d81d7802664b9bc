// How much a queue pair may have in flight: slow start, then additive increase; less on a loss, and less where packets
// are marked.
// Source of the latter: Zhu et al., Congestion Control for Large-Scale RDMA Deployments (DCQCN), SIGCOMM 2015, for
// rates; Alizadeh et al., Data Center TCP, SIGCOMM 2010, for windows.
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
    congestion_ = 1;
    marked_ = was_marked_ = false;
    acknowledged_in_round_ = 0;
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
    acknowledged_in_round_ += bytes;
    if (acknowledged_in_round_ >= bytes_) end_round();
  }

  /// Packets met a queue that was filling. To be called once a round trip at most. How far it gives way depends on how
  /// many of the latest round trips were like that: by half if all, and at first.
  void congested() {
    marked_ = was_marked_ = true;
    threshold_ = std::max(static_cast<std::uint64_t>(static_cast<double>(bytes_) * (1 - congestion_ / 2)), smallest());
    bytes_ = threshold_;
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

  static constexpr double kWeightOfARound = 1.0 / 16;

  void end_round() {
    acknowledged_in_round_ = 0;
    if (was_marked_) congestion_ += kWeightOfARound * ((marked_ ? 1 : 0) - congestion_);
    marked_ = false;
  }

  std::uint64_t smallest() const { return std::max(kSmallestBytes, 2 * step_); }

  std::uint64_t step_ = 0;
  std::uint64_t largest_ = 0;
  std::uint64_t threshold_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t acknowledged_in_round_ = 0;
  double congestion_ = 1;    ///< share of round trips with marks, moving average
  bool marked_ = false;      ///< in this round trip
  bool was_marked_ = false;  ///< in any
};

}  // namespace plugfest::roce
