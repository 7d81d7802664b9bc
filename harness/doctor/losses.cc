#include "harness/doctor/losses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>

#include <memory>
#include <optional>
#include <string>

namespace plugfest::doctor {

namespace {

std::string name_of(const VerbsDevice& device, const VerbsPort& port, std::string_view what) {
  return fmt::format("{} port {} {}", device.name, port.number, what);
}

/// "priority 3,4" for bits 3 and 4.
std::string priorities(unsigned bits) {
  std::vector<int> set;
  for (int priority = 0; priority < 8; ++priority)
    if ((bits >> priority & 1) != 0) set.push_back(priority);
  return set.empty() ? "no priority" : fmt::format("priority {}", fmt::join(set, ","));
}

/// Priorities on which the receiver answers ECN-marked packets with congestion notifications (Mellanox's driver).
std::optional<unsigned> marked_priorities(const Machine& machine, const std::string& net) {
  if (!machine.exists(net + "/ecn/roce_np")) return std::nullopt;
  unsigned marked = 0;
  for (int priority = 0; priority < 8; ++priority)
    if (machine.number(fmt::format("{}/ecn/roce_np/enable/{}", net, priority)) == 1) marked |= 1u << priority;
  return marked;
}

std::optional<Finding> flow_control(const Machine& machine, const VerbsDevice& device, const VerbsPort& port) {
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
  if (seen.empty()) return std::nullopt;
  Finding it{.name = name_of(device, port, "flow control"), .text = fmt::format("{}", fmt::join(seen, "; "))};
  if (paused == 0 && marked.value_or(0) == 0) {
    it.state = State::kWarning;
    it.text += ": a switch drops packets when its buffer is full";
    it.fix =
        fmt::format("sudo dcb pfc set dev {} prio-pfc all:off 3:on   # also on the switches, for the same priority",
                    port.interface);
  }
  return it;
}

std::optional<Finding> losses(const VerbsDevice& device, const VerbsPort& port) {
  std::vector<std::string> grown;
  for (const char* name : {"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err",
                           "rx_icrc_encapsulated", "roce_adp_retrans_to"}) {
    const auto found = port.counters.find(name);
    if (found != port.counters.end() && found->second > 0) grown.push_back(fmt::format("{} {}", name, found->second));
  }
  if (grown.empty()) return std::nullopt;
  return Finding{
      .name = name_of(device, port, "losses"),
      .state = State::kWarning,
      .text = fmt::format("since the machine started: {}", fmt::join(grown, ", ")),
      .fix = fmt::format("grep . /sys/class/infiniband/{}/ports/{}/hw_counters/*   # repeat it after some traffic",
                          device.name, port.number)};
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
  if (port.is_ethernet())
    if (const auto it = flow_control(machine, device, port)) findings.push_back(*it);
  if (const auto it = losses(device, port)) findings.push_back(*it);
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
  if (nlmsg_append(message.get(), &request, sizeof request, NLMSG_ALIGNTO) != 0 ||
      nla_put_string(message.get(), DCB_ATTR_IFNAME, interface.c_str()) != 0) {
    return std::nullopt;
  }
  std::optional<std::uint8_t> kept;
  nl_socket_disable_auto_ack(socket.get());
  nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, keep_attributes, &kept);
  if (nl_send_auto(socket.get(), message.get()) < 0) return std::nullopt;
  nl_recvmsgs_default(socket.get());  // an error (such as no support) leaves `kept` empty
  return kept;
}

}  // namespace plugfest::doctor
