// Which socket of those that share UDP port 4791 belongs to which process, found out by asking and told to the kernel.
//
// The kernel numbers the sockets of a port in the order of their joining, and puts the last one in the place of one
// that leaves. A process's slot (process_slot.h) is that number until somebody leaves. Then packets come to the wrong
// process, which passes them on and asks: a probe names a number, the kernel gives it to the socket of that number, and
// the process there tells which slot it has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/roce/wire/address.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class PortMap {
 public:
  /// A slot that no process has: packets for its queue pairs are probes.
  static constexpr std::uint8_t kProbeSlot = 255;

  /// "The process with this slot has the socket of this number."
  struct Claim {
    std::uint32_t nonce;  ///< of the probe that it answers
    std::uint8_t slot;
    std::uint8_t number;
  };
  struct Probe {
    std::uint8_t asker;  ///< slot
    std::uint32_t nonce;
    std::uint8_t number;
  };

  PortMap();

  /// Tells the kernel. `receiver` is any socket of the port. Returns false with errno.
  bool attach(int receiver) const;

  /// Sends probes to `here`, the shared port, from `sender`, unless that was done just now.
  void ask(int sender, const SocketAddress& here, std::uint8_t own_slot, Nanoseconds now);

  /// What a packet for kProbeSlot asks, or nothing if it is none of ours.
  static std::optional<Probe> read(std::span<const std::byte> packet);

  /// Takes an answer. Returns true if the map has changed; then attach() it.
  bool learn(const Claim& claim, int sender, const SocketAddress& here);

 private:
  void send_probes(int sender, const SocketAddress& here);

  std::array<std::uint8_t, 256> numbers_;  ///< by slot
  std::array<bool, 256> answered_ = {};    ///< by slot, since ask()
  unsigned answers_ = 0;                   ///< of different slots
  unsigned probes_ = 0;                    ///< sent since ask()
  std::uint32_t nonce_ = 0;
  std::uint8_t own_slot_ = 0;
  Nanoseconds ask_again_at_ = 0;
};

}  // namespace plugfest::roce
