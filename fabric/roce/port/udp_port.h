// UDP port 4791 of one local address: its sockets, the system calls on them, and the processes that share the port.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/roce/port/port_map.h"
#include "fabric/roce/port/refusals.h"
#include "fabric/roce/wire/address.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/clock.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// Memory for the payload of the next packets of a long message, each with a full payload of one path MTU.
struct Placement {
  std::byte* memory = nullptr;  ///< null: no direct placement
  std::size_t packets = 0;
};

}  // namespace plugfest::roce

// With a sanitizer the calls go through libc, so that it sees which memory the kernel accesses, and that receiving a
// packet happens after sending it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLUGFEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLUGFEST_SANITIZED 1
#endif
#endif

namespace plugfest::roce {

/// Make the system calls sendmsg(2) and recvmsg(2). They are not cancellation points: a canceled thread of the program
/// must not end while it holds the NIC's lock.
inline ssize_t send_message(int descriptor, const msghdr& message, int flags) {
#ifdef PLUGFEST_SANITIZED
  return sendmsg(descriptor, &message, flags);
#else
  return syscall(SYS_sendmsg, descriptor, &message, flags);
#endif
}
inline ssize_t receive_message(int descriptor, msghdr& message, int flags) {
#ifdef PLUGFEST_SANITIZED
  return recvmsg(descriptor, &message, flags);
#else
  return syscall(SYS_recvmsg, descriptor, &message, flags);
#endif
}

/// A socket that sends packets.
///
/// Each send socket has its own source port, so that switches and receivers can distinguish flows. The socket is bound
/// and unconnected, because only then the IPv4 identification is known (wire/icrc.h).
class SendSocket {
 public:
  SendSocket(Descriptor descriptor, std::uint16_t port) : descriptor_(std::move(descriptor)), port_(port) {}

  int descriptor() const { return descriptor_.get(); }
  std::uint16_t port() const { return port_; }

  /// Whether the kernel had no room for a batch and a queue pair waits for room.
  bool blocked() const { return blocked_; }
  void set_blocked() { blocked_ = true; }
  /// Unblocks the socket if the kernel has room again. True if it was blocked and has room now.
  bool unblock_if_writable();

  /// Reads reports of other hosts, after a send call has failed.
  void read_refusals() { refusals_.read(descriptor_.get()); }
  /// Whether `address` has refused a packet for this queue pair since the last call: see Refusals::take().
  template <typename Concerns>
  bool refused(const Address& address, std::uint32_t queue_pair_number, const Concerns& concerns) {
    read_refusals();
    return refusals_.take(address, queue_pair_number, concerns);
  }

  void close_in_child() { descriptor_ = Descriptor(); }

 private:
  Descriptor descriptor_;
  const std::uint16_t port_;
  Refusals refusals_;
  bool blocked_ = false;
};

/// The IP and UDP header fields of a received packet.
struct Arrival {
  Endpoint source;
  Address destination;
  std::uint8_t traffic_class = 0;  ///< 0 before UdpPort::report_headers() or report_traffic_class()
  std::uint8_t hop_limit = 0;      ///< 0 before UdpPort::report_headers()
};

/// Packets of one sender, received with one system call. Each is `segment_bytes` long, except that the last may be
/// shorter.
struct ReceivedBatch {
  const std::byte* bytes = nullptr;
  std::size_t length = 0;
  std::size_t segment_bytes = 0;
  Arrival arrival;
};

/// The sockets of UDP port 4791 on one local address, or on a multicast group. Each process that has joined a group
/// gets all of its packets, so the processes of a group need no slots. A group has no send sockets: its datagrams are
/// sent from a local address. Not thread-safe; guarded by the NIC's lock.
class UdpPort {
 public:
  /// `address`: a multicast group is joined until destruction. `interface_index`: the scope of a link-local address,
  /// and the interface on which a group is joined. Errors: std::system_error.
  UdpPort(const Address& address, int interface_index);

  const Address& address() const { return address_; }
  int interface_index() const { return interface_index_; }
  int receive_descriptor() const { return receive_.get(); }

  /// The receive buffer that the kernel granted, in bytes as it counts them (overhead included).
  std::size_t receive_buffer_bytes() const { return receive_buffer_bytes_; }

  /// Receives the next batch without waiting. `buffer` has room for kReceiveBytes. Returns false if there is none.
  bool receive(std::byte* buffer, ReceivedBatch& batch) const;
  static constexpr std::size_t kReceiveBytes = 1 << 16;
  static constexpr std::size_t kSendSockets = 8;

  /// Reads the beginning of the next batch into `start` without removing the batch. Sets `batch` except for
  /// `batch.bytes`. Returns false if there is no batch.
  bool peek(std::span<std::byte> start, ReceivedBatch& batch) const;

  /// Receives the next batch into `parts`. Sets `batch` except for `batch.bytes`. Returns false if there is none, or if
  /// `parts` is not writable memory; then the batch is lost.
  bool receive(std::span<iovec> parts, ReceivedBatch& batch) const;

  /// Packets that the kernel dropped since the last call because the receive buffer was full.
  std::uint64_t new_buffer_drops();

  /// Makes the kernel report the traffic class and hop limit of each batch, which datagram receivers get.
  void report_headers();
  /// Makes the kernel report the traffic class of each batch.
  void report_traffic_class();

  /// The socket that sends the packets of a queue pair, always the same one for the same number. The first call opens
  /// all send sockets, so that the number of descriptors does not depend on the numbers of the queue pairs.
  /// Errors: std::system_error.
  SendSocket& send_socket(std::uint32_t queue_pair_number);

  void list_blocked_senders(std::vector<int>& descriptors) const;
  /// Unblocks the send sockets for which the kernel has room again. True if there was one.
  bool unblock_senders();

  /// Sends probes that find the process of each socket of the port, after this process has received a
  /// packet for another one. Does nothing if no send socket can be opened now.
  void probe_sockets(std::uint8_t own_slot, Nanoseconds now);
  void learn(const PortMap::Claim& claim);

  /// Closes everything in a child process after fork; calls only async-signal-safe functions.
  void close_in_child();

 private:
  void join_group();
  void open_send_sockets(std::uint32_t first_port);
  SocketAddress shared_name() const { return {{address_, kRoceUdpPort}, interface_index_}; }

  const Address address_;
  const int interface_index_;
  PortMap map_;
  Descriptor receive_;
  std::size_t receive_buffer_bytes_ = 0;
  std::uint32_t buffer_drops_ = 0;  ///< reported so far
  std::array<std::unique_ptr<SendSocket>, kSendSockets> send_sockets_;
};

}  // namespace plugfest::roce
