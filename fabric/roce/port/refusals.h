// Reports of other hosts that their RoCE port is closed (ICMP "port unreachable").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fabric/roce/wire/address.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// A packet that the host with `address` could not give to any process.
struct Refusal {
  Address address;
  std::uint32_t queue_pair_number = 0;
  Psn psn;
};

/// The latest refusals of a socket's packets. A report contains the beginning of the refused packet, so a sender that
/// did not see the packet cannot forge it. Not thread-safe.
class Refusals {
 public:
  /// Lets the kernel keep reports for a socket. Until they are read, its send calls fail once for each report.
  static void enable(int descriptor, const Address& local);

  /// Reads all reports of the socket.
  void read(int descriptor);

  /// Removes the refusals for a queue pair of a host. Returns whether one of them was for a packet for which `concerns`
  /// returns true.
  template <typename Concerns>
  bool take(const Address& address, std::uint32_t queue_pair_number, const Concerns& concerns) {
    bool found = false;
    for (Refusal& refusal : latest_) {
      if (refusal.address != address || refusal.queue_pair_number != queue_pair_number) continue;
      found = found || concerns(refusal.psn);
      refusal = {};
    }
    return found;
  }

 private:
  std::array<Refusal, 16> latest_;
  std::size_t next_ = 0;
};

}  // namespace plugfest::roce
