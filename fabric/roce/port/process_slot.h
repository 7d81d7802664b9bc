// Which of a host's processes a packet on the shared UDP port 4791 belongs to.
//
// Each process takes a slot, a number that no other process on the same address has, and its queue pair numbers begin
// with it. Holding a slot is having bound the abstract unix socket of its name; such names belong to the network
// namespace and vanish with their process, however it ends. A socket filter on the shared port picks the process by the
// slot (port_map.h). Where it picks the wrong one, that one forwards the packets to the owner's unix socket until the
// filter is mended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/roce/port/udp_port.h"
#include "fabric/system/descriptor.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class ProcessSlot {
 public:
  /// Takes the lowest free slot on `address`. Errors: std::runtime_error if all are taken, std::system_error.
  explicit ProcessSlot(const Address& address);

  std::uint8_t number() const { return number_; }

  /// Where forwarded packets arrive.
  int descriptor() const { return descriptor_.get(); }

  /// Passes packets to the process with slot `owner`. Returns false if there is none or
  /// its queue is full.
  bool forward(std::uint8_t owner, const ReceivedBatch& batch) const;

  /// Takes forwarded packets without waiting, or returns false. `buffer` has room for UdpPort::kReceiveBytes.
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
