// DP: devices and their properties.
#include <fmt/format.h>

#include <algorithm>

#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Device;
using control::PropertiesOutcome;
using control::Rank;

RULE(DP_01, Must, ApiRange::all(),  //
     .title = "devices counts", .text = "devices returns Success and writes *ndev, 0 or more.",
     .source = "plugin/net.cc: ncclNetPluginInit") {
  Rank rank = this->rank();
  const control::IntOutcome outcome = rank.try_devices(-7);
  control::require_success(outcome);
  expect(!outcome.untouched, fmt::format("{} returned Success and left *ndev as it was (-7)", outcome.call));
  expect(outcome.value >= 0, fmt::format("{} wrote *ndev = {}, expected 0 or more", outcome.call, outcome.value));
}

RULE(DP_04, Must, ApiRange::all(),  //
     .title = "getProperties writes every field",
     .text =
         "getProperties succeeds for every device and writes all fields of its version. Entries of vProps.devs "
         "beyond ndevs and padding may stay as they are.",
     .source = "plugin/net.cc, transport/net.cc, graph/topo.cc: the struct is uninitialised stack memory") {
  Rank rank = this->rank();
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const PropertiesOutcome first = rank.try_properties(Device{index}, 0x5a);
    const PropertiesOutcome second = rank.try_properties(Device{index}, 0xa5);
    control::require_success(first);
    control::require_success(second);
    for (const control::PropertyField& field : first.fields) {
      std::size_t size = field.size;
      if (field.name == "vProps.devs") {
        const std::int64_t used = std::clamp<std::int64_t>(first.integer("vProps.ndevs"), 0, 8);
        size = std::min(size, static_cast<std::size_t>(used) * sizeof(int));
      }
      const bool written = std::equal(first.bytes.begin() + static_cast<std::ptrdiff_t>(field.offset),
                                      first.bytes.begin() + static_cast<std::ptrdiff_t>(field.offset + size),
                                      second.bytes.begin() + static_cast<std::ptrdiff_t>(field.offset));
      expect(written, fmt::format("rank {}: getProperties({}) leaves {} unwritten", rank.name(), index, field.name));
    }
  }
}

RULE(DP_17, Must, ApiRange::from(9),  //
     .title = "vProps lists valid devices",
     .text =
         "vProps.ndevs is 1 to 4 (v12: 1 to 8) and the entries are device indexes; a physical device lists itself. "
         "[M] for v9 to v11 of a library, whose vProps NCCL copies unclamped; else, and for the identity, [S].",
     .source = "plugin/net/net_v9.cc, net_v10.cc: the copying loops") {
  Rank rank = this->rank();
  const int devices = rank.devices();
  const int most = api() >= 12 ? 8 : 4;
  const bool copied_unclamped = api() <= 11 && !rank.library().built_in;
  auto judge = [&](bool holds, const std::string& message) {
    if (copied_unclamped) {
      expect(holds, message);
    } else {
      should(holds, message);
    }
    return holds;
  };
  for (int index = 0; index < devices; ++index) {
    const PropertiesOutcome properties = rank.try_properties(Device{index});
    control::require_success(properties);
    const std::int64_t count = properties.integer("vProps.ndevs");
    if (!judge(1 <= count && count <= most, fmt::format("rank {}: device {}: vProps.ndevs is {}, expected 1 to {}",
                                                        rank.name(), index, count, most))) {
      continue;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const std::int64_t member = properties.integer("vProps.devs", i);
      judge(0 <= member && member < devices, fmt::format("rank {}: device {}: vProps.devs[{}] is {}, expected 0 to {}",
                                                         rank.name(), index, i, member, devices - 1));
    }
    if (count != 1) continue;
    const std::int64_t self = properties.integer("vProps.devs", 0);
    should(self == index, fmt::format("rank {}: device {} is physical and lists device {} in vProps, expected itself",
                                      rank.name(), index, self));
  }
}

RULE(DP_18, Must, ApiRange::from(9),  //
     .title = "maxP2pBytes is 1 byte to 1 TiB", .text = "0 < maxP2pBytes <= 1 TiB.",
     .source = "transport/net.cc: sendProxySetup and recvProxySetup refuse anything else") {
  Rank rank = this->rank();
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const std::uint64_t bytes = rank.properties(Device{index}).max_p2p_bytes;
    expect(bytes > 0 && bytes <= kMost,
           fmt::format("rank {}: device {}: maxP2pBytes is {}, expected 1 to {}", rank.name(), index, bytes, kMost));
  }
}

}  // namespace plugfest::conformance
