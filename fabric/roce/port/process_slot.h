// Shares UDP port 4791 of one address between the processes of a host.
//
// Each process takes a slot, a number that no other process on the same address has. The slot is the high byte of the
// process's queue pair numbers. A process holds a slot by binding an abstract unix socket with the slot in its name:
// such names are local to the network namespace, and the kernel releases them when the process ends. A socket filter on
// the shared port selects the process by the slot in a packet (port_map.h). If the filter selects a wrong process, that
// process forwards the packets to the owner's unix socket until the filter is corrected.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/roce/port/udp_port.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class ProcessSlot {
 public:
  /// Takes the lowest free slot on `address`, from PortMap::kFirstSlot on. Errors: std::runtime_error if all are taken,
  /// std::system_error.
  explicit ProcessSlot(const Address& address);

  std::uint8_t number() const { return number_; }

  /// The socket that receives forwarded packets.
  int descriptor() const { return descriptor_.get(); }

  /// Forwards a batch to the process with slot `owner`. Returns false if there is no such process or its queue is full.
  bool forward(std::uint8_t owner, const ReceivedBatch& batch) const;

  /// Receives a forwarded batch without waiting. `buffer` has room for UdpPort::kReceiveBytes. Returns false if there
  /// is none.
  bool receive(std::byte* buffer, ReceivedBatch& batch) const;

  void close_in_child() { descriptor_ = Descriptor(); }

 private:
  const Address address_;
  std::uint8_t number_ = 0;
  Descriptor descriptor_;
};

/// The slot in a queue pair number.
inline std::uint8_t slot_of(std::uint32_t queue_pair_number) {
  return static_cast<std::uint8_t>(queue_pair_number >> 16);
}

}  // namespace plugfest::roce
