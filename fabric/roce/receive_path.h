// Brings received packets from the kernel to their queue pairs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/port/packet_batch.h"
#include "fabric/roce/port/port_set.h"
#include "fabric/roce/port/receive_faults.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Most packets go through a buffer. In the middle of a long READ response, the header of the next packet is read first
/// (MSG_PEEK). If the packet continues a message, the kernel copies the payload of the whole batch directly into the
/// memory of that message. After several such batches in a row, the next batch is received in place without reading its
/// header first. Packets that do not continue the message are gathered into the buffer and then handled.
///
/// Not thread-safe; guarded by the NIC's lock.
class ReceivePath {
 public:
  /// `device`: name of the device in fault plans. `timer` is armed for delayed packets.
  ReceivePath(Counters& counters, PortSet& ports, const QueuePairTable& queue_pairs, std::string_view device,
              Timer& timer);
  ReceivePath(const ReceivePath&) = delete;
  ReceivePath& operator=(const ReceivePath&) = delete;

  /// Receives some of the packets that have arrived, and packets that a fault plan has delayed until `now`. True if
  /// packets arrived from the network.
  bool receive(Nanoseconds now);

  /// Looks for packets forwarded by other processes in the next receive(), instead of every 20 µs.
  void expect_forwarded() { forwarded_checked_ = 0; }

  ReceiveFaults& faults() { return faults_; }

 private:
  /// A message with batches that were received in place.
  struct InPlaceMessage {
    std::uint32_t queue_pair_number = 0;
    int batches = 0;          ///< number of consecutive batches
    Nanoseconds last_at = 0;  ///< time of the last batch
  };

  /// Receives what one system call returns. False if there are no packets.
  bool receive_batch(UdpPort& port, Nanoseconds now);
  /// Receives the next batch in place after reading its first header. nullopt: the batch must go through the buffer.
  std::optional<bool> receive_after_peek(UdpPort& port, Nanoseconds now);
  /// Receives the next batch into the memory of in_place_ without reading its header first. nullopt: the batch must go
  /// through the buffer. Its first packet does not continue the message, or has a longer header.
  std::optional<bool> receive_without_peek(UdpPort& port, Nanoseconds now);
  Placement placement_for(const ReceivedBatch& batch, std::span<const std::byte, kBthBytes> bth) const;
  /// Handles the packets in direct_, the first of which continues a message.
  void handle_in_place(UdpPort& port, const ReceivedBatch& batch, Nanoseconds now);
  void handle_batch(UdpPort& port, const ReceivedBatch& batch, Nanoseconds now, std::size_t first_index = 0);
  void handle_packet(std::span<const std::byte> bytes, std::size_t index, const Arrival& arrival, Nanoseconds now);
  void deliver_to_group(const Packet& packet, const Arrival& arrival, Nanoseconds now);
  void receive_forwarded(Nanoseconds now);
  void answer_probe(const UdpPort& port, std::span<const std::byte> packet);

  Counters& counters_;
  PortSet& ports_;
  const QueuePairTable& queue_pairs_;
  ReceiveFaults faults_;
  IcrcChecker icrc_;
  const std::unique_ptr<std::byte[]> buffer_;
  DirectBatch direct_;
  bool inside_read_ = false;  ///< the last READ response received was not the last one of its message
  InPlaceMessage in_place_;
  Nanoseconds forwarded_checked_ = 0;
};

}  // namespace plugfest::roce
