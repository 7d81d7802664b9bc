#include "harness/doctor/modes/priority_flow.h"

#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>

#include <memory>

namespace plugfest::doctor {
namespace {

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

std::optional<std::uint8_t> paused_priorities(std::span<const std::byte> attributes) {
  // nla_find takes a pointer to non-const, and only reads.
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
