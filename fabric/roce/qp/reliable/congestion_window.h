// How much a queue pair may have in flight: slow start, then additive increase. The window shrinks on loss and on
// congestion marks.
// Source of the reaction to marks: Zhu et al., Congestion Control for Large-Scale RDMA Deployments (DCQCN), SIGCOMM
// 2015, for rates; Alizadeh et al., Data Center TCP, SIGCOMM 2010, for windows.
#pragma once

#include <algorithm>
#include <cstdint>

namespace plugfest::roce {

/// A congestion window in bytes. Each packet counts with a fixed overhead, which stands for the memory that the
/// receiver's kernel needs to hold it.
class CongestionWindow {
 public:
  static constexpr std::uint64_t kPacketOverheadBytes = 512;
  static constexpr std::uint64_t kMinBytes = 4 * 1024;

  /// Starts with the initial window. `largest_bytes`: upper limit.
  void start(std::uint64_t path_mtu_bytes, std::uint64_t largest_bytes) {
    step_ = path_mtu_bytes + kPacketOverheadBytes;
    largest_ = largest_bytes;
    threshold_ = largest_bytes;
    congestion_ = 1;
    marked_ = was_marked_ = false;
    acknowledged_in_round_ = 0;
    bytes_ = std::min(largest_bytes, kInitialBytes);
  }

  std::uint64_t bytes() const { return bytes_; }

  /// Grows the window after `bytes` were acknowledged.
  void on_acknowledgement(std::uint64_t bytes) {
    if (bytes_ < threshold_) {
      bytes_ += bytes;
    } else {
      bytes_ += std::max<std::uint64_t>(1, kPacketsPerRoundTrip * step_ * bytes / bytes_);
    }
    bytes_ = std::min(bytes_, largest_);
    acknowledged_in_round_ += bytes;
    if (acknowledged_in_round_ >= bytes_) end_round();
  }

  /// Shrinks the window because packets were marked. Call at most once per round trip. The window shrinks by half the
  /// share of recent round trips with marks; that share is 1 at first.
  void on_congestion() {
    marked_ = was_marked_ = true;
    threshold_ = std::max(static_cast<std::uint64_t>(static_cast<double>(bytes_) * (1 - congestion_ / 2)), min_bytes());
    bytes_ = threshold_;
  }

  /// Shrinks the window by 30 % because a packet was lost and later ones arrived.
  void on_loss() {
    threshold_ = std::max(bytes_ * 7 / 10, min_bytes());
    bytes_ = threshold_;
  }

  /// Shrinks the window to the minimum because no acknowledgement came.
  void on_timeout() {
    threshold_ = std::max(bytes_ / 2, min_bytes());
    bytes_ = min_bytes();
  }

 private:
  static constexpr std::uint64_t kInitialBytes = 128 * 1024;

  // In equilibrium the packets per round trip are what its losses cost: 30 % of a window of W packets, with the
  // probability of loss p, W · p times. So W = √(4 / 0.3p), 37 packets at 1 % random loss. TCP's one packet and 50 %
  // give 14.
  static constexpr std::uint64_t kPacketsPerRoundTrip = 4;

  static constexpr double kRoundTripWeight = 1.0 / 16;

  void end_round() {
    acknowledged_in_round_ = 0;
    if (was_marked_) congestion_ += kRoundTripWeight * ((marked_ ? 1 : 0) - congestion_);
    marked_ = false;
  }

  std::uint64_t min_bytes() const { return std::max(kMinBytes, 2 * step_); }

  std::uint64_t step_ = 0;  ///< cost of a full packet
  std::uint64_t largest_ = 0;
  std::uint64_t threshold_ = 0;  ///< end of slow start
  std::uint64_t bytes_ = 0;
  std::uint64_t acknowledged_in_round_ = 0;
  double congestion_ = 1;    ///< share of round trips with marks, moving average
  bool marked_ = false;      ///< a packet was marked in this round trip
  bool was_marked_ = false;  ///< a packet was ever marked
};

}  // namespace plugfest::roce
