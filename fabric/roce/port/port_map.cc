#include "fabric/roce/port/port_map.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "fabric/roce/wire/wire.h"
#include "fabric/system/number.h"

namespace plugfest::roce {
namespace {

// Bytes of the BTH: the first and the last byte of the destination queue pair number.
constexpr std::uint32_t kSlotOffset = 5;
constexpr std::uint32_t kNumberOffset = 7;
constexpr std::size_t kAskerOffset = kBthBytes;
constexpr std::size_t kNonceOffset = kBthBytes + 4;
constexpr std::size_t kProbeBytes = kBthBytes + 8;

constexpr unsigned kProbesAtOnce = 16;
constexpr Nanoseconds kProbeInterval = 20'000'000;

}  // namespace

PortMap::PortMap() { std::iota(numbers_.begin() + kFirstSlot, numbers_.end(), std::uint8_t{0}); }

bool PortMap::attach(int receiver) const {
  std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kSlotOffset),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kProbeSlot, 0, 2),
                                      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kNumberOffset), BPF_STMT(BPF_RET | BPF_A, 0)};
  for (std::uint32_t slot = kFirstSlot; slot < kProbeSlot; ++slot) {
    if (numbers_[slot] == slot - kFirstSlot) continue;
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, slot, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, numbers_[slot]));
  }
  program.push_back(BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, kFirstSlot));
  program.push_back(BPF_STMT(BPF_RET | BPF_A, 0));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(receiver, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof(filter)) == 0;
}

void PortMap::probe(int sender, const SocketAddress& here, std::uint8_t own_slot, Nanoseconds now) {
  if (now < next_probe_at_) return;
  next_probe_at_ = now + kProbeInterval;
  nonce_ = random_number();
  own_slot_ = own_slot;
  answered_.fill(false);
  answers_ = probes_ = 0;
  send_probes(sender, here);
}

void PortMap::send_probes(int sender, const SocketAddress& here) {
  for (const unsigned end = std::min<unsigned>(probes_ + kProbesAtOnce, kProbeSlot); probes_ < end; ++probes_) {
    std::array<std::byte, kProbeBytes> packet = {};
    packet[kSlotOffset] = std::byte{kProbeSlot};
    packet[kNumberOffset] = static_cast<std::byte>(probes_);
    packet[kAskerOffset] = static_cast<std::byte>(own_slot_);
    std::memcpy(packet.data() + kNonceOffset, &nonce_, sizeof(nonce_));
    // A lost probe is sent again after the next packet for another process.
    sendto(sender, packet.data(), packet.size(), MSG_DONTWAIT, here.get(), here.length());
  }
}

std::optional<PortMap::Probe> PortMap::decode(std::span<const std::byte> packet) {
  if (packet.size() != kProbeBytes || packet[kSlotOffset] != std::byte{kProbeSlot}) return std::nullopt;
  Probe probe = {static_cast<std::uint8_t>(packet[kAskerOffset]), 0, static_cast<std::uint8_t>(packet[kNumberOffset])};
  std::memcpy(&probe.nonce, packet.data() + kNonceOffset, sizeof(probe.nonce));
  return probe;
}

bool PortMap::learn(const Claim& claim, int sender, const SocketAddress& here) {
  if (claim.nonce != nonce_ || claim.number >= probes_) return false;
  // The kernel gives a probe for an unused number to any socket. So a socket's own number is the smallest one that it
  // receives a probe for.
  if (answered_[claim.slot] && numbers_[claim.slot] <= claim.number) return false;
  if (!answered_[claim.slot]) ++answers_;
  answered_[claim.slot] = true;
  const bool changed = numbers_[claim.slot] != claim.number;
  numbers_[claim.slot] = claim.number;
  if (answers_ == probes_) send_probes(sender, here);  // every number so far has a socket: more sockets may exist
  return changed;
}

}  // namespace plugfest::roce
