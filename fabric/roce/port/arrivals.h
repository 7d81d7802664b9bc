// What arrives at the NIC, and the faults on the way in.
#pragma once

#include <cstddef>
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
#include "fabric/roce/wire/icrc.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class Arrivals {
 public:
  /// Takes one packet: segment `index` of its batch.
  using Sink = std::function<void(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival,
                                  Nanoseconds now)>;

  /// `arm` is called with the time when take_due() wants to be called.
  Arrivals(Counters& counters, std::string_view device, Sink sink, std::function<void(Nanoseconds)> arm)
      : counters_(counters), faults_(device, Direction::kIn), sink_(std::move(sink)), arm_(std::move(arm)) {}

  FaultDecider& faults() { return faults_; }

  /// From now on packets are written there as well, as they are when faults have happened to them; null ends that.
  void log_to(PacketLog* log) { log_ = log; }

  /// Whether packets have to go through take(). Otherwise whoever receives them handles them himself.
  bool meddle() const { return log_ != nullptr || changes_packets(); }

  /// Gives the packets of a batch to the sink: now, later or never.
  void take(const ReceivedBatch& batch, Nanoseconds now);

  /// The same with what was late until now.
  void take_due(Nanoseconds now);
  Nanoseconds due() const { return delayed_.due(); }

 private:
  struct Parcel {
    Arrival arrival;
    std::size_t first_index;
    std::size_t segment_bytes;
    std::vector<std::byte> bytes;
  };

  bool changes_packets() const { return faults_.any() || !delayed_.empty() || !held_.empty(); }
  void give(Parcel& parcel, Nanoseconds now);
  void give_with_faults(Parcel& packet, Nanoseconds now);
  void give_now(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival, Nanoseconds now);
  void log(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival);

  Counters& counters_;
  FaultDecider faults_;
  Sink sink_;
  std::function<void(Nanoseconds)> arm_;
  DelayQueue<Parcel> delayed_;
  ReorderBuffer<Parcel> held_;
  PacketLog* log_ = nullptr;
  IdentificationSpan identifications_;
};

}  // namespace plugfest::roce
