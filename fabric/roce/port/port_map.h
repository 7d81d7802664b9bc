// The map from the processes that share UDP port 4791 to their sockets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/roce/wire/address.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Maps process slots to the sockets that share UDP port 4791.
///
/// The kernel numbers the sockets of a port in the order in which they were bound. When a socket is closed, the last
/// one gets its number. A process's slot (ProcessSlot in port_set.h) is that number plus kFirstSlot until a process
/// ends. After that the kernel may give packets to a wrong process, which forwards them and sends probes. A probe
/// contains a number. The kernel gives the probe to the socket with this number, and the process that owns the socket
/// answers with its slot.
///
/// Not thread-safe; guarded by the NIC's lock.
class PortMap {
 public:
  /// The first slot is not 0, so that a program that truncates queue pair numbers to 16 bits fails.
  static constexpr std::uint8_t kFirstSlot = 1;
  /// A slot that no process has: packets for queue pairs of this slot are probes.
  static constexpr std::uint8_t kProbeSlot = 255;

  /// The answer to a probe: the process with slot `slot` owns the socket with number `number`.
  struct Claim {
    std::uint32_t nonce;  ///< nonce of the probe
    std::uint8_t slot;
    std::uint8_t number;
  };
  struct Probe {
    std::uint8_t asker;  ///< slot that sent the probe
    std::uint32_t nonce;
    std::uint8_t number;
  };

  PortMap();

  /// Attaches the socket filter for this map. `receiver`: any socket of the port. Returns false with errno set.
  bool attach(int receiver) const;

  /// Sends probes to `here`, the shared port, from `sender`, at most once in 20 ms.
  void probe(int sender, const SocketAddress& here, std::uint8_t own_slot, Nanoseconds now);

  /// Decodes a packet for kProbeSlot. nullopt if it is not a valid probe.
  static std::optional<Probe> decode(std::span<const std::byte> packet);

  /// Handles an answer. Returns true if the map has changed; then attach() must be called.
  bool learn(const Claim& claim, int sender, const SocketAddress& here);

 private:
  void send_probes(int sender, const SocketAddress& here);

  std::array<std::uint8_t, 256> numbers_ = {};  ///< socket number of each slot
  std::array<bool, 256> answered_ = {};         ///< whether each slot has answered since probe()
  unsigned answers_ = 0;                        ///< number of slots that have answered since probe()
  unsigned probes_ = 0;                         ///< number of probes sent since probe()
  std::uint32_t nonce_ = 0;
  std::uint8_t own_slot_ = 0;
  Nanoseconds next_probe_at_ = 0;
};

}  // namespace plugfest::roce
