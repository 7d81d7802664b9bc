#include "fabric/roce/faults/fault_decision.h"

#include <algorithm>

#include "fabric/roce/wire/icrc.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kUncoveredByte = 4;  // BTH: FECN, BECN, reserved bits
constexpr unsigned kMaxLaterPackets = 4;

// A plan for both directions has one seed; the two directions use different random sequences.
std::mt19937_64 stream_of(const FaultPlan& plan, Direction direction) {
  constexpr std::uint64_t kReceiveMask = 0x9e3779b97f4a7c15;
  return std::mt19937_64(plan.seed ^ (direction == Direction::kIn ? kReceiveMask : 0));
}

bool chance(std::mt19937_64& random, double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random) < probability;
}

// Change of the ICRC when `bit` of `byte` is inverted. A CRC is linear: the other bytes have no influence.
std::uint32_t crc_difference(std::size_t byte, std::byte bit, std::size_t packet_bytes) {
  std::vector<std::byte> rest(packet_bytes - kIcrcBytes - byte);
  const std::uint32_t before = crc32(0, rest.data(), rest.size());
  rest[0] = bit;
  return crc32(0, rest.data(), rest.size()) ^ before;
}

}  // namespace

void FaultDecider::set_plans(std::span<const FaultPlan> plans) {
  std::vector<Active> before = std::move(active_);
  active_.clear();
  alters_packets_ = delays_packets_ = false;
  for (const FaultPlan& plan : plans) {
    if (!plan.concerns(device_, direction_)) continue;
    const auto same =
        std::find_if(before.begin(), before.end(), [&](const Active& active) { return active.plan == plan; });
    if (same != before.end()) {
      active_.push_back(std::move(*same));
      before.erase(same);
    } else {
      active_.push_back({plan, stream_of(plan, direction_)});
    }
    alters_packets_ |= plan.loss > 0 || plan.duplicate > 0 || plan.reorder > 0 || plan.corrupt > 0;
    delays_packets_ |= plan.delay > 0 || plan.jitter > 0;
  }
}

FaultDecision FaultDecider::next() {
  FaultDecision decision;
  for (auto& [plan, random] : active_) {
    // Draws all random numbers for every packet, so that changing one probability does not change other faults.
    decision.loss |= chance(random, plan.loss);
    decision.corrupt |= chance(random, plan.corrupt);
    decision.duplicate |= chance(random, plan.duplicate);
    const bool reorder = chance(random, plan.reorder);
    const std::uint64_t choice = random();
    decision.random ^= choice;
    if (reorder)
      decision.overtaken_by = std::max(decision.overtaken_by, 1 + static_cast<unsigned>(choice % kMaxLaterPackets));
  }
  return decision;
}

Nanoseconds FaultDecider::next_delay() {
  Nanoseconds sum = 0;
  for (auto& [plan, random] : active_) {
    sum += plan.delay;
    if (plan.jitter > 0) sum += std::uniform_int_distribution<Nanoseconds>(0, plan.jitter)(random);
  }
  return sum;
}

void corrupt(std::span<std::byte> packet, std::uint64_t random) {
  IdentificationSpan identifications;
  for (std::uint64_t attempt = random;; ++attempt) {
    const std::size_t index = attempt % (packet.size() * 8);
    const std::size_t byte = index / 8;
    const std::byte bit{static_cast<std::uint8_t>(1u << (index % 8))};
    if (byte == kUncoveredByte) continue;
    const std::size_t trailer = packet.size() - kIcrcBytes;
    const std::uint32_t difference =
        byte < trailer ? crc_difference(byte, bit, packet.size())
                       : static_cast<std::uint32_t>(std::to_integer<std::uint32_t>(bit) << (8 * (byte - trailer)));
    if (identifications.explains(difference, packet.size())) continue;
    packet[byte] ^= bit;
    return;
  }
}

}  // namespace plugfest::roce
