// DP rules: devices and their properties.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <utility>

#include "conformance/rules/library_check.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

namespace {

// Whether `field` is an unused entry: "vProps.devs[i]" with i >= ndevs.
bool is_unused_member(const PropertiesOutcome& properties, std::string_view field) {
  constexpr std::string_view kMember = "vProps.devs[";
  if (!field.starts_with(kMember)) return false;
  return std::stoi(std::string(field.substr(kMember.size()))) >= properties.integer("vProps.ndevs");
}

// False for fields that NCCL takes from other tables only (netDeviceVersion: from devices that are not HOST), and for
// the members of devices that makeVDevice has not created (graph/topo.cc: ncclTopoProcessNet).
bool is_read_by_nccl(std::string_view field) {
  for (const char* unread : {"regIsGlobal", "netDeviceVersion", "maxCollBytes", "maxMultiRequestSize"})
    if (field == unread) return false;
  return !field.starts_with("vProps.devs[");
}

}  // namespace

RULE(DP_01, Must, ApiRange::all(),  //
     .title = "devices writes the number of devices", .text = "devices returns Success and writes *ndev, 0 or more.",
     .source = "plugin/net.cc: ncclNetPluginInit",
     .why = "NCCL trusts the count and calls getProperties for each index below it.",
     .check = "Presets *ndev to -7, calls devices and looks at the value.",
     .blind = "A count that is too high; DP-04 finds it.") {
  Rank rank = near_rank();
  const IntOutcome outcome = rank.try_devices(-7);
  require_success(outcome);
  expect(!outcome.untouched,
         fmt::format("{} returned Success and did not write *ndev (still -7), expected 0 or more", outcome.call));
  expect(outcome.value >= 0, fmt::format("{} wrote *ndev = {}, expected 0 or more", outcome.call, outcome.value));
}

RULE(DP_04, Must, ApiRange::all(),  //
     .title = "getProperties writes every field",
     .text =
         "getProperties succeeds for every device and writes every field of its version. Padding and the entries of "
         "vProps.devs beyond ndevs may stay unwritten. [S] for the fields that NCCL does not read from a net table: "
         "regIsGlobal, netDeviceVersion, maxCollBytes, maxMultiRequestSize, and vProps.devs of a physical device.",
     .source = "plugin/net.cc, transport/net.cc, graph/topo.cc: the struct is uninitialized stack memory",
     .why =
         "The struct that NCCL passes is uninitialized stack memory. A field that is not written has a random value, "
         "which differs from host to host.",
     .check =
         "Calls getProperties twice for each device, on memory filled with two different bytes, and looks for bytes "
         "that are left.",
     .blind = "A field that is written with a wrong value; other DP rules look at the values.") {
  Rank rank = near_rank();
  for_each_device(rank, [&](int index, const PropertiesOutcome& first, const std::string& call) {
    constexpr std::byte kFirst{0x5a}, kSecond{0xa5};  // the first one is the default of try_properties
    const PropertiesOutcome second = rank.try_properties(Device{index}, std::to_integer<std::uint8_t>(kSecond));
    require_success(second);
    for (const PropertyField& field : first.fields) {
      if (is_unused_member(first, field.name)) continue;
      std::size_t unwritten = 0;
      for (std::size_t at = field.offset; at < field.offset + field.size; ++at)
        unwritten += first.bytes[at] == kFirst && second.bytes[at] == kSecond ? 1 : 0;
      // The bytes of these pointers may be equal by chance, since a plugin may copy the strings on each call.
      const bool is_string = field.name == "name" || field.name == "pciPath";
      const bool written = unwritten < (is_string ? field.size : 1);
      const std::string message =
          fmt::format("{} did not write {}, expected every field to be written", call, field.name);
      if (is_read_by_nccl(field.name))
        expect(written, message);
      else
        should(written, message);
    }
  });
}

RULE(
    DP_17, Must, ApiRange::from(9),  //
    .title = "vProps lists valid devices",
    .text =
        "vProps.ndevs is 1 to 4 (v12: 1 to 8) and each listed entry of vProps.devs is a device index. A physical "
        "device lists itself. The level is [M] for an ndevs above 4 or below 0 in libraries of v9 to v11, because NCCL "
        "copies as many entries without a bound, and [S] otherwise.",
    .source = "plugin/net/net_v9.cc, net_v10.cc: the copying loops",
    .why =
        "For libraries of v9 to v11 NCCL copies vProps.ndevs entries into an array of 4. A larger number overwrites "
        "other memory.",
    .check = "Reads vProps of all devices and checks the count and the members.",
    .blind = "Virtual devices that makeVDevice would create.") {
  Rank rank = near_rank();
  const int devices = rank.devices();
  const int most = api() >= 12 ? 8 : 4;
  const bool copied_unclamped = api() <= 11 && !rank.library().built_in;
  constexpr std::int64_t kUnwritten = 0x5a5a5a5a;  // the fill of try_properties
  for_each_device(rank, [&](int index, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t count = properties.integer("vProps.ndevs");
    const std::string found = count == kUnwritten ? "was not written" : fmt::format("is {}", count);
    const std::string text = fmt::format("{}: vProps.ndevs {}, expected 1 to {}", call, found, most);
    should(1 <= count && count <= most, text);
    expect((0 <= count && count <= most) || !copied_unclamped, text);
    if (count < 1 || count > most) return;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const std::int64_t member = properties.integer("vProps.devs", i);
      should(0 <= member && member < devices,
             fmt::format("{}: vProps.devs[{}] is {}, expected 0 to {}", call, i, member, devices - 1));
    }
    const std::int64_t self = properties.integer("vProps.devs", 0);
    should(count != 1 || self == index,
           fmt::format("{}: vProps.devs[0] is {}, expected {}: the device is physical", call, self, index));
  });
}

RULE(DP_18, Must, ApiRange::from(9),  //
     .title = "maxP2pBytes is 1 byte to 1 TiB", .text = "maxP2pBytes is greater than 0 and at most 1 TiB.",
     .source = "transport/net.cc: sendProxySetup and recvProxySetup refuse anything else",
     .why = "NCCL refuses to connect with a device whose maxP2pBytes is 0 or above 1 TiB.",
     .check = "Reads maxP2pBytes of all devices.",
     .blind = "Whether messages of that size arrive: most transports are too slow to try.") {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 40;
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const auto bytes = static_cast<std::uint64_t>(properties.integer("maxP2pBytes"));
    expect(bytes > 0 && bytes <= kMax, fmt::format("{}: maxP2pBytes is {}, expected 1 to {}", call, bytes, kMax));
  });
}

RULE(
    DP_05, Must, ApiRange::all(),  //
    .title = "name and pciPath stay valid until finalize",
    .text =
        "The strings behind name and pciPath stay valid and unchanged until finalize. [S] if makeVDevice is NULL: NCCL "
        "then copies the strings at once.",
    .source =
        "graph/topo.cc: ncclTopoMakeVNics reads the properties of all devices, then ncclTopoForceMerge reads the "
        "names; ncclTopoPopulateNics copies the strings at once",
    .why =
        "To merge devices, NCCL keeps the pointers while it reads the properties of other devices. If "
        "NCCL_NET_FORCE_MERGE is set, it merges the wrong devices, or reads freed memory and crashes.",
    .check =
        "Reads the properties of all devices twice, then compares the first strings with what their addresses hold "
        "now.",
    .blind = "Strings that change only after other calls than getProperties.",
    .faults = {{"aws/aws-ofi-nccl#1181", "each getProperties allocated new strings that nobody freed"}}) {
  Rank rank = near_rank();
  struct Text {
    int device;
    const char* field;
    std::uint64_t address;
    std::string content;
  };
  std::vector<Text> texts;
  for_each_device(rank, [&](int index, const PropertiesOutcome& properties, const std::string&) {
    const auto add = [&](const char* field, const std::optional<std::string>& content) {
      if (content) texts.push_back({index, field, static_cast<std::uint64_t>(properties.integer(field)), *content});
    };
    add("name", properties.name);
    add("pciPath", properties.pci_path);
  });
  for (int index = rank.devices(); index-- > 0;) rank.properties(Device{index});
  const bool merges_devices = rank.has_function("makeVDevice");
  for (const Text& text : texts) {
    const std::vector<std::byte> now = rank.read({text.address, text.content.size() + 1});
    const std::string content(reinterpret_cast<const char*>(now.data()), text.content.size());
    const bool is_same = content == text.content && now.back() == std::byte{0};
    const std::string change =
        fmt::format("rank {}: {} of device {} changed from \"{}\" to \"{}\", expected no change until finalize",
                    rank.name(), text.field, text.device, text.content, content);
    should(is_same, change);
    expect(is_same || !merges_devices, change);
  }
}

RULE(DP_08, Must, ApiRange::all(),  //
     .title = "device names are unique",
     .text = "name is not NULL, not empty, shorter than 256 characters and unique among the devices.",
     .source = "graph/topo.cc: ncclTopoFillNet uses the name as a key, cut off at 255 characters",
     .why =
         "NCCL's topology identifies NICs by name. Two devices of one name become one node, and traffic of both uses "
         "one.",
     .check = "Reads the names of all devices and looks for NULL, empty, long and repeated ones.",
     .blind = "Names that differ between processes of one host.") {
  std::map<std::string, int> owners;
  for_each_device(near_rank(), [&](int index, const PropertiesOutcome& properties, const std::string& call) {
    expect(properties.name.has_value(), call + ": name is NULL, expected a string");
    expect(!properties.name->empty(), call + ": name is empty, expected 1 to 255 characters");
    expect(properties.name->size() < 256,
           fmt::format("{}: name has {} characters, expected 1 to 255", call, properties.name->size()));
    const auto [owner, is_new] = owners.emplace(*properties.name, index);
    expect(is_new, fmt::format("{}: name is \"{}\", the name of device {} too, expected a unique name", call,
                               *properties.name, owner->second));
  });
}

RULE(DP_09, Must, ApiRange::all(),  //
     .title = "pciPath of a PCI device ends in its bus id",
     .text =
         "pciPath is NULL, or the last part of it is a PCI bus id, such as 0000:81:00.0. [S] for a path that only "
         "contains a bus id: NCCL attaches its device to the first processor, as each device that is not on the PCI "
         "bus.",
     .source = "graph/xml.cc: ncclTopoFillNet takes the last part for the bus id",
     .why =
         "NCCL reads the PCI location of the NIC from the last part of the path. A path through /sys/class, or with a "
         "slash at its end, gives a wrong location, and NCCL builds slow rings.",
     .check =
         "Looks at the last part of the pciPath of each device that is a PCI device, because its link subsystem leads "
         "to pci, and of each device whose path contains a bus id and that is on no other bus, such as virtio.",
     .blind = "Whether the bus id belongs to the NIC.") {
  Rank rank = near_rank();
  static const std::regex bus_id("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  for_each_device(rank, [&](int index, const PropertiesOutcome& properties, const std::string&) {
    const std::string path = properties.pci_path.value_or("");
    if (path.empty()) return;
    const bool ends_in_bus_id = std::regex_match(path.substr(path.rfind('/') + 1), bus_id);
    if (ends_in_bus_id) return;
    const std::string subsystem = rank.link_target(path + "/subsystem");
    const std::string message = fmt::format(
        "rank {}: pciPath of device {} is \"{}\", expected a bus id after the last slash", rank.name(), index, path);
    expect(!subsystem.ends_with("/bus/pci"), message);
    should(!std::regex_search(path, bus_id) || subsystem.find("/bus/") != std::string::npos, message);
  });
}

RULE(
    DP_10, Should, ApiRange::all(),  //
    .title = "guid and port identify a physical port",
    .text =
        "No two physical devices have the same guid and port. When there are several devices, at least one guid is not "
        "0. A device that combines others (vProps.ndevs greater than 1) may have the guid and port of one of them.",
    .source = "graph/topo.cc: net nodes by guid and port",
    .why =
        "NCCL takes devices with equal guid and port for one physical port, and plans with the bandwidth of one. That "
        "is right for virtual functions of one port.",
    .check = "Compares guid and port of all physical devices of a host.",
    .blind = "Equal guids on different hosts, which NCCL does not compare.") {
  Rank rank = near_rank();
  std::map<std::pair<std::int64_t, std::int64_t>, int> owners;
  int devices = 0, without_guid = 0;
  for_each_device(rank, [&](int index, const PropertiesOutcome& properties, const std::string&) {
    ++devices;
    const std::int64_t guid = properties.integer("guid"), port = properties.integer("port");
    without_guid += guid == 0 ? 1 : 0;
    if (properties.has("vProps.ndevs") && properties.integer("vProps.ndevs") > 1) return;
    const auto [owner, is_new] = owners.emplace(std::pair(guid, port), index);
    expect(is_new, fmt::format("rank {}: devices {} and {} both have guid {:#x} and port {}, expected a unique pair",
                               rank.name(), owner->second, index, static_cast<std::uint64_t>(guid), port));
  });
  expect(devices < 2 || without_guid < devices,
         fmt::format("rank {}: all {} devices have guid 0, expected at least one other guid", rank.name(), devices));
}

RULE(DP_11, Should, ApiRange::all(),  //
     .title = "ptrSupport includes host memory",
     .text = "ptrSupport has the HOST bit and no undefined bit. The DMABUF bit requires regMrDmaBuf.",
     .source =
         "transport/net.cc: LL buffers are host memory; NCCL tests the CUDA and DMABUF bits only. init.cc: "
         "dmaBufSupported looks at regMrDmaBuf first",
     .why =
         "NCCL registers host memory for the LL protocols with every plugin. If regMrDmaBuf is NULL, it does not use "
         "DMA-BUFs, although the plugin says that it supports them.",
     .check = "Looks at the bits of ptrSupport, and at regMrDmaBuf if the DMABUF bit is set.",
     .blind = "Whether GPU memory works, which needs a GPU.") {
  Rank rank = near_rank();
  constexpr std::int64_t kHost = 1, kCuda = 2, kDmaBuf = 4;
  for_each_device(rank, [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t support = properties.integer("ptrSupport");
    should((support & kHost) != 0,
           fmt::format("{}: ptrSupport is {:#x}, expected bit 0x1 (host memory)", call, support));
    should((support & ~(kHost | kCuda | kDmaBuf)) == 0,
           fmt::format("{}: ptrSupport is {:#x}, expected only bits 0x1, 0x2 and 0x4", call, support));
    should((support & kDmaBuf) == 0 || rank.has_function("regMrDmaBuf"),
           call + ": ptrSupport has the DMABUF bit and regMrDmaBuf is NULL, expected a function");
  });
}

RULE(
    DP_15, Must, ApiRange::all(),  //
    .title = "maxRecvs is 1 to 64",
    .text = "maxRecvs is at least 1, one buffer per receive. [S]: it is at most 64, the largest group that NCCL posts.",
    .source = "transport/net.cc: recvProxyProgress; NCCL_PROXY_MAX_SUBS",
    .why = "NCCL groups up to maxRecvs receives into one call and divides by it. 0 makes it post nothing.",
    .check = "Reads maxRecvs of all devices.",
    .blind = "Whether groups of that size work: XF-07 and XF-22 to XF-26 post them.",
    .faults = {{"NVIDIA/nccl#1723", "authors of a plugin asked what maxRecvs has to be"}}) {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t max_recvs = properties.integer("maxRecvs");
    const std::string message = fmt::format("{}: maxRecvs is {}, expected 1 to 64", call, max_recvs);
    expect(1 <= max_recvs, message);
    should(max_recvs <= 64, message);
  });
}

}  // namespace plugfest::conformance
