#include "harness/doctor/verbs_device.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>

namespace plugfest::doctor {
namespace {

// "4: ACTIVE" without the number.
std::string word_after_number(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

bool is_empty(const std::string& gid) { return gid.find_first_not_of("0:") == std::string::npos; }

std::vector<Gid> gids_of(const Machine& machine, const std::string& folder) {
  std::vector<Gid> gids;
  for (const std::string& entry : machine.list(folder + "/gids")) {
    Gid gid;
    gid.index = std::atoi(entry.c_str());
    gid.text = machine.read(folder + "/gids/" + entry).value_or("");
    if (is_empty(gid.text) || gid.text.starts_with("fe80:0000:0000:0000:0000:0000:0000:0000")) continue;
    gid.type = machine.read(folder + "/gid_attrs/types/" + entry).value_or("");
    gid.interface = machine.read(folder + "/gid_attrs/ndevs/" + entry).value_or("");
    gids.push_back(gid);
  }
  std::sort(gids.begin(), gids.end(), [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return gids;
}

// The network interface of a device without GIDs.
std::string interface_below(const Machine& machine, const std::string& device) {
  const auto names = machine.list("/sys/class/infiniband/" + device + "/device/net");
  return names.empty() ? "" : names.front();
}

VerbsPort port_of(const Machine& machine, const std::string& device, const std::string& number) {
  const std::string folder = "/sys/class/infiniband/" + device + "/ports/" + number;
  const auto text = [&](const char* file) { return machine.read(folder + "/" + file).value_or(""); };
  VerbsPort port;
  port.number = std::atoi(number.c_str());
  port.state = word_after_number(text("state"));
  port.physical_state = word_after_number(text("phys_state"));
  port.link_layer = text("link_layer");
  port.rate = text("rate");
  port.gids = gids_of(machine, folder);
  if (port.is_ethernet()) {
    port.interface = port.gids.empty() ? interface_below(machine, device) : port.gids.front().interface;
    port.mtu_bytes = machine.number("/sys/class/net/" + port.interface + "/mtu").value_or(0);
  }
  for (const std::string& name : machine.list(folder + "/hw_counters"))
    if (const auto value = machine.number(folder + "/hw_counters/" + name)) port.counters[name] = *value;
  return port;
}

struct Member {
  std::string device;
  std::string interface;
  long mtu_bytes = 0;
};

// "10.0.0.0/24" from a line of /proc/net/route. Its addresses are hexadecimal, little-endian.
std::string subnet_text(std::uint32_t destination, std::uint32_t mask) {
  return fmt::format("{}.{}.{}.{}/{}", destination & 0xff, destination >> 8 & 0xff, destination >> 16 & 0xff,
                     destination >> 24, std::popcount(mask));
}

// "fd00:1::/64" from the hexadecimal address in a line of /proc/net/if_inet6.
std::string subnet_text(const std::string& digits, unsigned prefix) {
  std::array<std::uint8_t, 16> bytes{};
  for (unsigned i = 0; i < bytes.size(); ++i) {
    const unsigned kept = prefix < 8 * i ? 0 : std::min(prefix - 8 * i, 8u);
    bytes[i] = static_cast<std::uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16) & (0xff00u >> kept));
  }
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, bytes.data(), text, sizeof(text));
  return fmt::format("{}/{}", text, prefix);
}

}  // namespace

std::string Gid::ipv4() const {
  constexpr std::string_view kMapped = "0000:0000:0000:0000:0000:ffff:";
  unsigned high = 0, low = 0;
  if (!text.starts_with(kMapped) || std::sscanf(text.c_str() + kMapped.size(), "%4x:%4x", &high, &low) != 2) return "";
  return fmt::format("{}.{}.{}.{}", high >> 8, high & 0xff, low >> 8, low & 0xff);
}

std::string port_name(const VerbsDevice& device, const VerbsPort& port) {
  return fmt::format("{} port {}", device.name, port.number);
}

std::vector<VerbsDevice> verbs_devices(const Machine& machine) {
  std::vector<VerbsDevice> devices;
  for (const std::string& name : machine.list("/sys/class/infiniband")) {
    const std::string folder = "/sys/class/infiniband/" + name;
    VerbsDevice device;
    device.name = name;
    device.driver = machine.link_target(folder + "/device/driver");
    device.firmware = machine.read(folder + "/fw_ver").value_or("");
    device.model = machine.read(folder + "/hca_type").value_or("");
    for (const std::string& node : machine.list("/sys/class/infiniband_verbs"))
      if (machine.read("/sys/class/infiniband_verbs/" + node + "/ibdev") == name) device.node = node;
    for (const std::string& number : machine.list(folder + "/ports"))
      device.ports.push_back(port_of(machine, name, number));
    devices.push_back(std::move(device));
  }
  return devices;
}

int roce_path_mtu(long interface_mtu_bytes) {
  constexpr long kHeaders = 96;
  for (const int mtu : {4096, 2048, 1024, 512})
    if (interface_mtu_bytes - kHeaders >= mtu) return mtu;
  return 256;
}

std::vector<ConnectedSubnet> connected_subnets(const Machine& machine) {
  std::vector<ConnectedSubnet> subnets;
  std::istringstream routes(machine.read("/proc/net/route").value_or(""));
  for (std::string line; std::getline(routes, line);) {
    char interface[32] = {};
    unsigned destination = 0, gateway = 0, flags = 0, mask = 0;
    if (std::sscanf(line.c_str(), "%31s %x %x %x %*d %*d %*d %x", interface, &destination, &gateway, &flags, &mask) !=
            5 ||
        gateway != 0 || mask == 0)
      continue;
    subnets.push_back({interface, subnet_text(destination, mask)});
  }
  std::istringstream addresses(machine.read("/proc/net/if_inet6").value_or(""));
  for (std::string line; std::getline(addresses, line);) {
    char digits[33] = {}, interface[32] = {};
    unsigned prefix = 0, scope = 0;
    if (std::sscanf(line.c_str(), "%32[0-9a-f] %*x %x %x %*x %31s", digits, &prefix, &scope, interface) != 4 ||
        std::string_view(digits).size() != 32 || prefix > 128 || scope != 0)
      continue;
    subnets.push_back({interface, subnet_text(digits, prefix)});
  }
  return subnets;
}

std::vector<Finding> mtu_mismatches(const Machine& machine, const std::vector<VerbsDevice>& devices) {
  std::map<std::string, std::vector<Member>> subnets;
  for (const ConnectedSubnet& connected : connected_subnets(machine))
    for (const VerbsDevice& device : devices)
      for (const VerbsPort& port : device.ports)
        if (port.interface == connected.interface && port.mtu_bytes != 0)
          subnets[connected.subnet].push_back({device.name, port.interface, port.mtu_bytes});
  std::vector<Finding> findings;
  for (const auto& [subnet, members] : subnets) {
    const auto [least, most] = std::minmax_element(
        members.begin(), members.end(), [](const Member& a, const Member& b) { return a.mtu_bytes < b.mtu_bytes; });
    if (least->mtu_bytes == most->mtu_bytes) continue;
    std::vector<std::string> words;
    for (const Member& member : members)
      words.push_back(fmt::format("{} ({}) {}", member.device, member.interface, member.mtu_bytes));
    findings.push_back(warning(
        "MTU in " + subnet, fmt::format("the MTUs differ, so that large packets are lost: {}", fmt::join(words, ", ")),
        fmt::format("sudo ip link set {} mtu {}", least->interface, most->mtu_bytes)));
  }
  return findings;
}

namespace {

// "priority 3,4" for bits 3 and 4.
std::string priorities(unsigned bits) {
  std::vector<int> set;
  for (int priority = 0; priority < 8; ++priority)
    if ((bits >> priority & 1) != 0) set.push_back(priority);
  return set.empty() ? "no priority" : fmt::format("priority {}", fmt::join(set, ","));
}

// Priorities on which the receiver answers ECN-marked packets with congestion notifications (Mellanox's driver).
std::optional<unsigned> marked_priorities(const Machine& machine, const std::string& net) {
  if (!machine.exists(net + "/ecn/roce_np")) return std::nullopt;
  unsigned marked = 0;
  for (int priority = 0; priority < 8; ++priority)
    if (machine.number(fmt::format("{}/ecn/roce_np/enable/{}", net, priority)) == 1) marked |= 1u << priority;
  return marked;
}

std::vector<Finding> flow_control(const Machine& machine, const VerbsDevice& device, const VerbsPort& port) {
  const std::string net = "/sys/class/net/" + port.interface;
  const auto paused = machine.trials().paused_priorities(port.interface);
  const auto marked = marked_priorities(machine, net);
  std::vector<std::string> seen;
  if (paused) seen.push_back("PFC on " + priorities(*paused));
  if (marked) seen.push_back("ECN on " + priorities(*marked));
  if (const auto trust = machine.read(net + "/qos/trust")) seen.push_back("trust " + *trust);
  const std::string classes = fmt::format("/sys/class/infiniband/{}/tc/{}/traffic_class", device.name, port.number);
  if (const auto traffic_class = machine.read(classes); traffic_class && !traffic_class->empty())
    seen.push_back("traffic class: " + *traffic_class);
  if (seen.empty()) return {};
  const std::string name = port_name(device, port) + " flow control", text = fmt::format("{}", fmt::join(seen, "; "));
  if (paused != 0 || marked.value_or(0) != 0) return {good(name, text)};
  return {warning(
      name, text + ": a switch drops packets when its buffer is full",
      fmt::format("sudo dcb pfc set dev {} prio-pfc all:off 3:on   # also on the switches, for the same priority",
                  port.interface))};
}

std::vector<Finding> losses(const VerbsDevice& device, const VerbsPort& port) {
  std::vector<std::string> grown;
  for (const char* name : {"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err",
                           "rx_icrc_encapsulated", "roce_adp_retrans_to"}) {
    const auto found = port.counters.find(name);
    if (found != port.counters.end() && found->second > 0) grown.push_back(fmt::format("{} {}", name, found->second));
  }
  if (grown.empty()) return {};
  return {warning(port_name(device, port) + " losses",
                  fmt::format("since the machine started: {}", fmt::join(grown, ", ")),
                  fmt::format("grep . /sys/class/infiniband/{}/ports/{}/hw_counters/*   # repeat it after some traffic",
                              device.name, port.number))};
}

int keep_attributes(nl_msg* message, void* kept) {
  const nlmsghdr* header = nlmsg_hdr(message);
  if (!nlmsg_valid_hdr(header, sizeof(dcbmsg))) return NL_SKIP;
  const std::span<const std::byte> attributes(
      reinterpret_cast<const std::byte*>(nlmsg_attrdata(header, sizeof(dcbmsg))),
      static_cast<std::size_t>(nlmsg_attrlen(header, sizeof(dcbmsg))));
  *static_cast<std::optional<std::uint8_t>*>(kept) = paused_priorities(attributes);
  return NL_OK;
}

}  // namespace

std::vector<Finding> examine_losses(const Machine& machine, const VerbsDevice& device, const VerbsPort& port) {
  std::vector<Finding> findings;
  if (port.is_ethernet()) append(findings, flow_control(machine, device, port));
  append(findings, losses(device, port));
  return findings;
}

std::optional<std::uint8_t> paused_priorities(std::span<const std::byte> attributes) {
  // nla_find takes a non-const pointer, but only reads.
  auto* const first = reinterpret_cast<nlattr*>(const_cast<std::byte*>(attributes.data()));
  const nlattr* ieee = nla_find(first, static_cast<int>(attributes.size()), DCB_ATTR_IEEE);
  if (ieee == nullptr) return std::nullopt;
  const nlattr* pfc = nla_find(static_cast<nlattr*>(nla_data(ieee)), nla_len(ieee), DCB_ATTR_IEEE_PFC);
  if (pfc == nullptr || nla_len(pfc) < static_cast<int>(sizeof(ieee_pfc))) return std::nullopt;
  return static_cast<const ieee_pfc*>(nla_data(pfc))->pfc_en;
}

std::optional<std::uint8_t> paused_priorities(const std::string& interface) {
  const std::unique_ptr<nl_sock, void (*)(nl_sock*)> socket(nl_socket_alloc(), nl_socket_free);
  const std::unique_ptr<nl_msg, void (*)(nl_msg*)> message(nlmsg_alloc_simple(RTM_GETDCB, NLM_F_REQUEST), nlmsg_free);
  if (!socket || !message || nl_connect(socket.get(), NETLINK_ROUTE) != 0) return std::nullopt;
  dcbmsg request{};
  request.cmd = DCB_CMD_IEEE_GET;
  if (nlmsg_append(message.get(), &request, sizeof(request), NLMSG_ALIGNTO) != 0 ||
      nla_put_string(message.get(), DCB_ATTR_IFNAME, interface.c_str()) != 0)
    return std::nullopt;
  std::optional<std::uint8_t> kept;
  nl_socket_disable_auto_ack(socket.get());
  nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, keep_attributes, &kept);
  if (nl_send_auto(socket.get(), message.get()) < 0) return std::nullopt;
  nl_recvmsgs_default(socket.get());  // an error (such as no support) leaves `kept` empty
  return kept;
}

}  // namespace plugfest::doctor
