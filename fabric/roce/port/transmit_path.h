// Sends packets and applies faults to them.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/capture/packet_log.h"
#include "fabric/roce/counters/counters.h"
#include "fabric/roce/faults/fault_decision.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// The socket and the addresses of a queue pair's packets.
struct Path {
  SendSocket* socket = nullptr;
  Address local;
  Address remote;
  SocketAddress to;  ///< the remote address's RoCE port
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

/// Packets of one path. Each is `segment_bytes` long, except that the last may be shorter.
struct OutgoingBatch {
  const Path& path;
  std::span<const iovec> parts;
  std::size_t packets = 0;
  std::size_t segment_bytes = 0;
  std::size_t total_bytes = 0;
};

/// Sends packets, applies the device's fault plans to them, and writes them to the capture file.
///
/// Not thread-safe; guarded by the NIC's lock.
class TransmitPath {
 public:
  /// `arm` is called with the time of the next send_due() call that is needed.
  TransmitPath(Counters& counters, std::string_view device, std::function<void(Nanoseconds)> arm)
      : counters_(counters), faults_(device, Direction::kOut), arm_(std::move(arm)) {}

  FaultDecider& faults() { return faults_; }

  /// Sets the capture file; null: none.
  void set_log(PacketLog* log) { log_ = log; }

  /// Decides the faults of the next packet. A packet to drop is not sent; a packet with another fault goes to
  /// send_with_faults().
  FaultDecision next_fault() { return faults_.alters_packets() ? faults_.next() : FaultDecision{}; }

  /// Whether each packet must be sent alone, because a held packet waits until others have been sent.
  bool holds_packets() const { return !held_.empty(); }

  /// Sends a batch, or delays it. False if the kernel has no room: then the socket is marked as blocked, and nothing
  /// was sent. Any other failure counts as packet loss.
  bool send(const OutgoingBatch& batch);

  /// Sends one packet with the faults of `decision`. If the kernel has no room, the packet is lost.
  void send_with_faults(const OutgoingBatch& packet, const FaultDecision& decision);

  /// Sends packets whose delay has ended.
  void send_due(Nanoseconds now);
  /// Time at which the first delayed packet is due; kNever if none is delayed.
  Nanoseconds due() const { return delayed_.due(); }

 private:
  /// A packet, or the packets of a batch, kept for later.
  struct PacketCopy {
    Path path;
    std::vector<std::byte> bytes;
    std::size_t segment_bytes;
  };

  static PacketCopy copy_of(const OutgoingBatch& batch);
  /// False if the kernel has no room.
  bool send_now(const OutgoingBatch& batch);
  bool send_now(const PacketCopy& copy);
  void send_delayed(PacketCopy copy);
  void send_now_or_delayed(PacketCopy copy);
  bool delays() const { return faults_.delays_packets() || !delayed_.empty(); }

  Counters& counters_;
  FaultDecider faults_;
  DelayQueue<PacketCopy> delayed_;
  ReorderBuffer<PacketCopy> held_;
  PacketLog* log_ = nullptr;
  std::function<void(Nanoseconds)> arm_;
};

}  // namespace plugfest::roce
