// Shares UDP port 4791 of one address between the processes of a host.
//
// Each process takes a slot, a number that no other process on the same interface has. The slot is the high byte of the
// process's queue pair numbers. A process holds a slot by binding an abstract unix socket with the slot in its name:
// such names are local to the network namespace, and the kernel releases them when the process ends. A socket filter on
// the shared port selects the process by the slot in a packet (PortMap in port_map.h). If the filter selects a wrong
// process, that process forwards the packets to the owner's unix socket until the filter is corrected.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/port/wakeup.h"
#include "fabric/roce/wire/address.h"
#include "fabric/system/clock.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// The slot in a queue pair number.
inline std::uint8_t slot_of(std::uint32_t queue_pair_number) {
  return static_cast<std::uint8_t>(queue_pair_number >> 16);
}

/// The slot of this process on one interface. Not thread-safe; guarded by the NIC's lock.
class ProcessSlot {
 public:
  /// Takes the lowest free slot of `place`, from PortMap::kFirstSlot on. `place`: an interface or an address. Errors:
  /// std::runtime_error if all are taken, std::system_error.
  explicit ProcessSlot(std::string place);

  std::uint8_t number() const { return number_; }

  /// The socket that receives forwarded packets.
  int descriptor() const { return descriptor_.get(); }

  enum class Forwarding : std::uint8_t { kDone, kNoSuchProcess, kQueueFull };

  /// Forwards a batch to the process with slot `owner`.
  Forwarding forward(std::uint8_t owner, const ReceivedBatch& batch) const;

  /// Receives a forwarded batch without waiting. `buffer` has room for UdpPort::kReceiveBytes. Returns false if there
  /// is none.
  bool receive(std::byte* buffer, ReceivedBatch& batch) const;

  void close_in_child() { descriptor_ = Descriptor(); }

 private:
  const std::string place_;
  std::uint8_t number_ = 0;
  Descriptor descriptor_;
};

/// Allows packets at the rate of the port, in bursts of 50 µs. No acknowledgement limits unreliable queue pairs, so
/// without this limit they would overflow the receive buffer of any receiver.
///
/// Not thread-safe; guarded by the NIC's lock.
class RateLimiter {
 public:
  explicit RateLimiter(std::uint64_t rate_mbps) : rate_mbps_(std::max<std::uint64_t>(1, rate_mbps)) {}

  bool may_send(Nanoseconds now) const { return free_at_ <= now + kBurst; }

  /// Time at which may_send() allows half a burst of packets.
  Nanoseconds resume_at() const { return free_at_ - kBurst / 2; }

  void sent(std::uint64_t bytes, Nanoseconds now) {
    constexpr std::uint64_t kNanosecondsPerMegabit = 8000;
    free_at_ = std::max(free_at_, now) + static_cast<Nanoseconds>(bytes * kNanosecondsPerMegabit / rate_mbps_);
  }

 private:
  static constexpr Nanoseconds kBurst = 50'000;

  const std::uint64_t rate_mbps_;
  Nanoseconds free_at_ = 0;  ///< when the port would have sent all packets so far
};

/// The local addresses of a NIC, and UDP port 4791 of these addresses and of the multicast groups in use. Not
/// thread-safe; guarded by the NIC's lock.
class PortSet {
 public:
  struct Settings {
    std::vector<Address> addresses;  ///< in GID order, at least one; Address() is an unused GID index
    int interface_index = 0;         ///< scope of link-local addresses
    int mtu_bytes = 1500;            ///< MTU of the interface
    std::uint64_t rate_mbps = 10'000;
    bool ecn = false;  ///< reliable packets are sent as ECN-capable, and received marks are reported
  };

  /// Opens no socket. Errors: std::system_error with EINVAL without an address.
  PortSet(Settings settings, Wakeup& wakeup);

  /// Takes a process slot and opens the first address. Calls after the first that succeeded do nothing. Errors:
  /// std::system_error with EADDRNOTAVAIL without an address, others as ProcessSlot and UdpPort.
  void open();

  /// Precondition: open() succeeded.
  ProcessSlot& slot() { return *slot_; }

  /// The local address with this GID index, if it is in use.
  std::optional<Address> address(unsigned gid_index) const;

  /// The UDP port of a local address or multicast group, opened if necessary. Errors: std::system_error.
  UdpPort& port(const Address& address);
  /// Whether `address` is one of the local addresses.
  bool has(const Address& address) const {
    return std::find(settings_.addresses.begin(), settings_.addresses.end(), address) != settings_.addresses.end();
  }
  /// Closes the UDP port of a multicast group, and so leaves it.
  void close_group(const Address& group);
  /// Whether other hosts can be reached by multicast. The hosts of a loopback fabric cannot.
  bool supports_multicast() const { return !settings_.addresses.front().is_loopback(); }

  /// Opens the UDP ports of all local addresses, present and future, so that they receive datagrams. Skips addresses
  /// that cannot be opened, for example because the interface has just lost them.
  void open_all();

  void set_addresses(std::vector<Address> in_gid_order);
  void set_mtu(int mtu_bytes) { settings_.mtu_bytes = mtu_bytes; }

  ibv_mtu largest_path_mtu() const;

  /// A quarter of the kernel's receive buffer, within 64 KiB and 1 MiB: a congestion window that the buffer of a peer
  /// with the same settings can hold. Precondition: open() succeeded.
  std::uint64_t largest_congestion_window_bytes() const;

  bool ecn() const { return settings_.ecn; }
  RateLimiter& rate_limiter() { return rate_limiter_; }

  const std::vector<std::unique_ptr<UdpPort>>& ports() const { return ports_; }

  /// Adds the descriptors that become readable when packets arrive, and the blocked send sockets. Precondition:
  /// open() succeeded.
  void list_descriptors(std::vector<int>& readable, std::vector<int>& writable) const;

  /// Unblocks the send sockets for which the kernel has room again. True if there was one.
  bool unblock_senders();

  /// Packets that the kernel dropped since the last call because a receive buffer was full.
  std::uint64_t new_buffer_drops();

  /// Closes the sockets of all ports and of the slot. The port set is not used afterwards. Calls only async-signal-safe
  /// functions.
  void close_sockets();

 private:
  UdpPort& open_port(const Address& address);

  Settings settings_;
  Wakeup& wakeup_;
  RateLimiter rate_limiter_;
  std::optional<ProcessSlot> slot_;
  std::vector<std::unique_ptr<UdpPort>> ports_;  ///< the first one has the first address
  bool all_open_ = false;                        ///< open_all() was called
};

}  // namespace plugfest::roce
