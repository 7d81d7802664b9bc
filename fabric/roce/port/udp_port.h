// UDP port 4791 of one local address: the socket that packets arrive on and those that they leave by.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/roce/port/port_map.h"
#include "fabric/roce/wire/address.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/descriptor.h"

namespace plugfest::roce {

/// A socket that packets are sent from.
///
/// It has a source port of its own, so that switches and receivers can tell flows apart: a UDP socket sends from one
/// port only. It is bound and unconnected, because only then the IPv4 identification is known (icrc.h).
class SendSocket {
 public:
  SendSocket(Descriptor descriptor, std::uint16_t port) : descriptor_(std::move(descriptor)), port_(port) {}

  int descriptor() const { return descriptor_.get(); }
  std::uint16_t port() const { return port_; }

  /// The kernel had no room for a batch, and a queue pair waits for room.
  bool blocked() const { return blocked_; }
  void set_blocked() { blocked_ = true; }
  /// Unblocks the socket if the kernel has room again. True if it was blocked and has room now.
  bool unblock_if_writable();

  void close_in_child() { descriptor_ = Descriptor(); }

 private:
  Descriptor descriptor_;
  const std::uint16_t port_;
  bool blocked_ = false;
};

/// How a packet came.
struct Arrival {
  Endpoint source;
  Address destination;
  std::uint8_t traffic_class = 0;  ///< told since UdpPort::report_headers()
  std::uint8_t hop_limit = 0;      ///< likewise
};

/// What one receive call took from the kernel: packets of one sender, all `segment_bytes` long but for the last.
struct ReceivedBatch {
  const std::byte* bytes = nullptr;
  std::size_t length = 0;
  std::size_t segment_bytes = 0;
  Arrival arrival;
};

/// Not thread-safe; guarded by the NIC's lock.
class UdpPort {
 public:
  /// `interface_index`: where a link-local address is meant. Errors: std::system_error.
  UdpPort(const Address& address, int interface_index);

  const Address& address() const { return address_; }
  int interface_index() const { return interface_index_; }
  int receive_descriptor() const { return receive_.get(); }

  /// The receive buffer that the kernel granted, in bytes as it counts them (overhead included).
  std::size_t receive_buffer_bytes() const { return receive_buffer_bytes_; }

  /// Takes the next packets without waiting. `buffer` has room for kReceiveBytes. Returns false if there are none.
  bool receive(std::byte* buffer, ReceivedBatch& batch) const;
  static constexpr std::size_t kReceiveBytes = 1 << 16;

  /// Looks at the next packets and leaves them there: `batch` but for its `bytes`, and the first ones in `start`. False
  /// if there are none.
  bool peek(std::span<std::byte> start, ReceivedBatch& batch) const;

  /// Takes the next packets into `parts`: `batch` but for its `bytes`. False if there are none, or if the parts are no
  /// memory of this process; then they are lost.
  bool receive(std::span<iovec> parts, ReceivedBatch& batch) const;

  /// Packets that the kernel dropped since this was last asked, for want of room in the receive buffer.
  std::uint64_t new_buffer_drops();

  /// Has traffic class and hop limit told with each batch: who receives datagrams wants to know them.
  void report_headers();
  /// The same with the traffic class alone.
  void report_traffic_class();

  /// The socket that a queue pair's packets leave by: the same for the same number. Made when first asked for.
  /// Errors: std::system_error.
  SendSocket& send_socket(std::uint32_t queue_pair_number);

  /// Adds the descriptors of blocked send sockets.
  void list_blocked_senders(std::vector<int>& descriptors) const;
  /// Unblocks the send sockets for which the kernel has room again. True if there was one.
  bool unblock_senders();

  /// Finds out which socket of the port is whose, after a packet for another process came here. Errors:
  /// std::system_error.
  void ask_whose(std::uint8_t own_slot, Nanoseconds now);
  /// An answer to that.
  void learn(const PortMap::Claim& claim);

  /// Closes everything in a child process after fork; calls only async-signal-safe functions.
  void close_in_child();

 private:
  SocketAddress shared_name() const { return {{address_, kRoceUdpPort}, interface_index_}; }

  const Address address_;
  const int interface_index_;
  PortMap map_;
  Descriptor receive_;
  std::size_t receive_buffer_bytes_ = 0;
  std::uint32_t buffer_drops_ = 0;  ///< told so far
  std::array<std::unique_ptr<SendSocket>, 8> send_sockets_;
};

}  // namespace plugfest::roce
