#include "harness/faults/packet_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>
#include <utility>

#include "fabric/topology/quantity.h"

namespace plugfest::faults {
namespace {

constexpr std::pair<std::string_view, double PacketFaults::*> kFractions[] = {{"loss", &PacketFaults::loss},
                                                                              {"duplicate", &PacketFaults::duplicate},
                                                                              {"reorder", &PacketFaults::reorder},
                                                                              {"corrupt", &PacketFaults::corrupt}};
constexpr std::string_view kDelay = "delay";

}  // namespace

std::vector<std::string> packet_fields() {
  std::vector<std::string> names;
  for (const auto& [name, member] : kFractions) names.emplace_back(name);
  names.emplace_back(kDelay);
  return names;
}

bool set_packet_field(PacketFaults& packets, std::string_view name, std::string_view value) {
  if (name == kOtherNameOfLoss) name = "loss";
  for (const auto& [known, member] : kFractions) {
    if (name != known) continue;
    packets.*member = topology::parse_fraction(value);
    return true;
  }
  if (name != kDelay) return false;
  packets.delay_us = topology::parse_delay(value);
  return true;
}

std::uint64_t parse_seed(std::string_view text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::runtime_error(fmt::format("\"{}\": expected a whole number", text));
  }
  return seed;
}

}  // namespace plugfest::faults
