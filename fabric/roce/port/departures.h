// What leaves the NIC: the system calls that send, and the faults on the way out.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/capture/packet_log.h"
#include "fabric/roce/counters/counters.h"
#include "fabric/roce/faults/delay_queue.h"
#include "fabric/roce/faults/fault_decision.h"
#include "fabric/roce/faults/reorder_buffer.h"
#include "fabric/roce/port/udp_port.h"

namespace plugfest::roce {

/// Where a queue pair's packets go and by which socket.
struct Path {
  SendSocket* socket = nullptr;
  Address local;
  Address remote;
  SocketAddress to;  ///< the remote address's RoCE port
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

/// Packets of one path, all `segment_bytes` long but for the last.
struct DepartingBatch {
  const Path& path;
  std::span<const iovec> parts;
  std::size_t packets = 0;
  std::size_t segment_bytes = 0;
  std::size_t total_bytes = 0;
};

/// Not thread-safe; guarded by the NIC's lock.
class Departures {
 public:
  /// `arm` is called with the time when send_due() wants to be called.
  Departures(Counters& counters, std::string_view device, std::function<void(Nanoseconds)> arm)
      : counters_(counters), faults_(device, Direction::kOut), arm_(std::move(arm)) {}

  FaultDecider& faults() { return faults_; }

  /// From now on packets are written there as well, when they leave; null ends that.
  void log_to(PacketLog* log) { log_ = log; }

  /// What happens to the next packet. One that is dropped is not sent at all; others that are touched go by
  /// send_touched().
  FaultDecision next_fault() { return faults_.alters_packets() ? faults_.next() : FaultDecision{}; }

  /// Whether packets must go one by one for now, because one is held back until others have gone.
  bool one_by_one() const { return !held_.empty(); }

  /// Sends a batch. False if the kernel has no room: then the socket is marked as blocked, and nothing was sent. Any
  /// other failure counts as a packet lost on the way.
  bool send(const DepartingBatch& batch);

  /// Sends one packet that does not go as it is. Where the kernel has no room it is lost.
  void send_touched(const DepartingBatch& packet, const FaultDecision& decision);

  /// Sends what was late until now.
  void send_due(Nanoseconds now);
  Nanoseconds due() const { return delayed_.due(); }

 private:
  struct Parcel {
    Path path;
    std::vector<std::byte> bytes;
    std::size_t segment_bytes;
  };

  static Parcel copy_of(const DepartingBatch& batch);
  bool go(const DepartingBatch& batch);
  bool go(const Parcel& parcel);
  void go_late(Parcel parcel);
  void go_now_or_late(Parcel parcel);
  bool delays() const { return faults_.delays_packets() || !delayed_.empty(); }

  Counters& counters_;
  FaultDecider faults_;
  DelayQueue<Parcel> delayed_;
  ReorderBuffer<Parcel> held_;
  PacketLog* log_ = nullptr;
  std::function<void(Nanoseconds)> arm_;
};

}  // namespace plugfest::roce
