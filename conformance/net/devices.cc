// DP: devices and their properties.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Device;
using control::PropertiesOutcome;
using control::Rank;

namespace {

/// Whether `field` is a place for a member that the device does not have: "vProps.devs[i]" with i >= ndevs.
bool is_unused_member(const PropertiesOutcome& properties, std::string_view field) {
  constexpr std::string_view kMember = "vProps.devs[";
  if (!field.starts_with(kMember)) return false;
  return std::stoi(std::string(field.substr(kMember.size()))) >= properties.integer("vProps.ndevs");
}

}  // namespace

RULE(DP_01, Must, ApiRange::all(),  //
     .title = "devices counts", .text = "devices returns Success and writes *ndev, 0 or more.",
     .source = "plugin/net.cc: ncclNetPluginInit") {
  Rank rank = near_rank();
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
  Rank rank = near_rank();
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const PropertiesOutcome first = rank.try_properties(Device{index}, 0x5a);
    const PropertiesOutcome second = rank.try_properties(Device{index}, 0xa5);
    control::require_success(first);
    control::require_success(second);
    for (const control::PropertyField& field : first.fields) {
      if (is_unused_member(first, field.name)) continue;
      const auto start = static_cast<std::ptrdiff_t>(field.offset),
                 end = start + static_cast<std::ptrdiff_t>(field.size);
      const bool written =
          std::equal(first.bytes.begin() + start, first.bytes.begin() + end, second.bytes.begin() + start);
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
  Rank rank = near_rank();
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
  Rank rank = near_rank();
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const std::uint64_t bytes = rank.properties(Device{index}).max_p2p_bytes;
    expect(bytes > 0 && bytes <= kMost,
           fmt::format("rank {}: device {}: maxP2pBytes is {}, expected 1 to {}", rank.name(), index, bytes, kMost));
  }
}

RULE(DP_05, Must, ApiRange::all(),  //
     .title = "strings of properties stay", .text = "name and pciPath stay valid and unchanged until finalize.",
     .source = "graph/topo.cc keeps the pointers and copies later") {
  Rank rank = near_rank();
  struct Text {
    int device;
    const char* field;
    std::uint64_t address;
    std::string content;
  };
  std::vector<Text> texts;
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const PropertiesOutcome properties = rank.try_properties(Device{index});
    control::require_success(properties);
    if (properties.name) {
      texts.push_back({index, "name", static_cast<std::uint64_t>(properties.integer("name")), *properties.name});
    }
    if (properties.pci_path) {
      texts.push_back(
          {index, "pciPath", static_cast<std::uint64_t>(properties.integer("pciPath")), *properties.pci_path});
    }
  }
  for (int index = devices; index-- > 0;) rank.properties(Device{index});
  for (const Text& text : texts) {
    const std::vector<std::byte> now = rank.read({text.address, text.content.size() + 1});
    const std::string content(reinterpret_cast<const char*>(now.data()), text.content.size());
    expect(content == text.content && now.back() == std::byte{0},
           fmt::format("rank {}: {} of device {} was \"{}\" and is now \"{}\"", rank.name(), text.field, text.device,
                       text.content, content));
  }
}

RULE(DP_08, Must, ApiRange::all(),  //
     .title = "devices have names of their own",
     .text = "name is not NULL, not empty, shorter than 256 characters and unique among the devices.",
     .source = "graph/topo.cc: ncclTopoFillNet uses it as a key, cut at 255 characters") {
  Rank rank = near_rank();
  std::map<std::string, int> owners;
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const PropertiesOutcome properties = rank.try_properties(Device{index});
    control::require_success(properties);
    expect(properties.name.has_value(), fmt::format("rank {}: device {} has no name", rank.name(), index));
    expect(!properties.name->empty(), fmt::format("rank {}: the name of device {} is empty", rank.name(), index));
    expect(properties.name->size() < 256, fmt::format("rank {}: the name of device {} has {} characters, expected at "
                                                      "most 255",
                                                      rank.name(), index, properties.name->size()));
    const auto [owner, is_new] = owners.emplace(*properties.name, index);
    expect(is_new, fmt::format("rank {}: devices {} and {} are both called \"{}\"", rank.name(), owner->second, index,
                               *properties.name));
  }
}

RULE(DP_10, Must, ApiRange::all(),  //
     .title = "guid and port tell physical ports apart",
     .text = "No two devices have the same guid and port, and several devices do not all have guid 0.",
     .source = "graph/topo.cc: net nodes by guid and port") {
  Rank rank = near_rank();
  std::map<std::pair<std::uint64_t, int>, int> owners;
  const int devices = rank.devices();
  int without_guid = 0;
  for (int index = 0; index < devices; ++index) {
    const control::Properties properties = rank.properties(Device{index});
    without_guid += properties.guid == 0 ? 1 : 0;
    const auto [owner, is_new] = owners.emplace(std::pair(properties.guid, properties.port), index);
    expect(is_new, fmt::format("rank {}: devices {} and {} both have guid {:#x} and port {}", rank.name(),
                               owner->second, index, properties.guid, properties.port));
  }
  expect(devices < 2 || without_guid < devices,
         fmt::format("rank {}: all {} devices have guid 0", rank.name(), devices));
}

RULE(DP_11, Must, ApiRange::all(),  //
     .title = "host memory is always supported",
     .text = "ptrSupport has the HOST bit and none that is not known; DMABUF only with regMrDmaBuf.",
     .source = "transport/net.cc: LL buffers are host memory") {
  Rank rank = near_rank();
  constexpr int kHost = 1, kCuda = 2, kDmaBuf = 4;
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const int support = rank.properties(Device{index}).ptr_support;
    expect((support & kHost) != 0, fmt::format("rank {}: device {}: ptrSupport is {:#x}, expected bit 1 (host memory)",
                                               rank.name(), index, support));
    expect((support & ~(kHost | kCuda | kDmaBuf)) == 0,
           fmt::format("rank {}: device {}: ptrSupport is {:#x}, expected bits 1, 2 and 4 only", rank.name(), index,
                       support));
    expect((support & kDmaBuf) == 0 || rank.has_function("regMrDmaBuf"),
           fmt::format("rank {}: device {}: ptrSupport promises DMA-BUF and regMrDmaBuf is NULL", rank.name(), index));
  }
}

RULE(DP_15, Must, ApiRange::all(),  //
     .title = "maxRecvs is 1 to 64", .text = "At least one buffer per receive, and not more than NCCL groups.",
     .source = "transport/net.cc: recvProxyProgress; NCCL_PROXY_MAX_SUBS") {
  Rank rank = near_rank();
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const int max_recvs = rank.properties(Device{index}).max_recvs;
    expect(1 <= max_recvs && max_recvs <= 64,
           fmt::format("rank {}: device {}: maxRecvs is {}, expected 1 to 64", rank.name(), index, max_recvs));
  }
}

}  // namespace plugfest::conformance
