// The local addresses of a NIC, and UDP port 4791 of those that are in use.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/roce/port/process_slot.h"
#include "fabric/roce/port/rate_limiter.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/port/wakeup.h"
#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class PortSet {
 public:
  struct Settings {
    std::vector<Address> addresses;  ///< in GID order, at least one; Address() is an unused GID index
    int interface_index = 0;         ///< scope of link-local addresses
    int mtu_bytes = 1500;            ///< of the interface
    std::uint64_t rate_mbps = 10'000;
    bool ecn = false;  ///< reliable packets are sent as ECN-capable, and received marks are reported
  };

  /// Opens no socket. Errors: std::system_error with EINVAL without an address.
  PortSet(Settings settings, Wakeup& wakeup);

  /// Takes a process slot and opens the first address. Calls after the first that succeeded do nothing. Errors:
  /// std::system_error, std::runtime_error as ProcessSlot.
  void open();

  /// With open() done.
  ProcessSlot& slot() { return *slot_; }

  /// The local address with this GID index, if it is in use.
  std::optional<Address> address(unsigned gid_index) const;

  /// The UDP port of a local address, opened if necessary. Errors: std::system_error.
  UdpPort& port(const Address& address);

  /// Opens the UDP ports of all local addresses, present and future, so that they receive datagrams. Skips addresses
  /// that cannot be opened, for example because the interface has just lost them.
  void open_all();

  void set_addresses(std::vector<Address> in_gid_order);
  void set_mtu(int mtu_bytes) { settings_.mtu_bytes = mtu_bytes; }

  ibv_mtu largest_path_mtu() const;

  /// A quarter of the kernel's receive buffer, within 64 KiB and 1 MiB: a congestion window that the buffer of a peer
  /// with the same settings can hold. With open() done.
  std::uint64_t largest_congestion_window_bytes() const;

  bool ecn() const { return settings_.ecn; }
  RateLimiter& rate_limiter() { return rate_limiter_; }

  /// The open ports.
  const std::vector<std::unique_ptr<UdpPort>>& ports() const { return ports_; }

  /// Adds the descriptors that become readable when packets come, and those of blocked send sockets. With open() done.
  void list_descriptors(std::vector<int>& readable, std::vector<int>& writable) const;

  /// Unblocks the send sockets for which the kernel has room again. True if there was one.
  bool unblock_senders();

  /// Packets that the kernel dropped since the last call because a receive buffer was full.
  std::uint64_t new_buffer_drops();

  /// Closes all sockets in a child process after fork; calls only async-signal-safe functions.
  void close_in_child();

 private:
  UdpPort& open_port(const Address& address);

  Settings settings_;
  Wakeup& wakeup_;
  RateLimiter rate_limiter_;
  std::optional<ProcessSlot> slot_;
  std::vector<std::unique_ptr<UdpPort>> ports_;  ///< the first is that of the first address
  bool all_open_ = false;                        ///< open_all() was called
};

}  // namespace plugfest::roce
