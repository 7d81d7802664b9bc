#include "fabric/netns/netlink.h"

#include <fmt/format.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netlink/attr.h>
#include <netlink/socket.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

namespace plugfest::netns {
namespace {

// The answers to one batch must fit into the receive buffer of 212992 bytes, in which each takes about 1 KiB.
constexpr std::size_t kBatch = 64;

// The text of the errno, and the kernel's own message if the answer contains one.
std::string reason_of(const nlmsghdr* header, const nlmsgerr* error) {
  std::string reason = std::strerror(-error->error);
  if ((header->nlmsg_flags & NLM_F_ACK_TLVS) != 0) {
    // The attributes follow a copy of the request, or of its header alone if the answer is capped.
    std::size_t offset = sizeof(nlmsgerr);
    if ((header->nlmsg_flags & NLM_F_CAPPED) == 0) offset += NLMSG_ALIGN(error->msg.nlmsg_len) - sizeof(nlmsghdr);
    if (NLMSG_LENGTH(offset) <= header->nlmsg_len) {
      const char* payload = static_cast<const char*>(nlmsg_data(header));
      auto* attributes = reinterpret_cast<nlattr*>(const_cast<char*>(payload + offset));
      const int length = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(offset));
      if (const nlattr* message = nla_find(attributes, length, NLMSGERR_ATTR_MSG))
        reason += fmt::format(" ({})", nla_get_string(message));
    }
  }
  return reason;
}

// Discards the answers that a failed batch has left. After an overflow the kernel drops all answers until the buffer is
// empty.
void discard_answers(int descriptor) {
  char byte = 0;
  ssize_t received = 0;
  do received = recv(descriptor, &byte, sizeof(byte), MSG_DONTWAIT);
  while (received >= 0 || errno == ENOBUFS || errno == EINTR);
}

}  // namespace

Netlink::Netlink() : socket_(nl_socket_alloc(), nl_socket_free) {
  if (!socket_) throw std::bad_alloc();
  if (const int error = nl_connect(socket_.get(), NETLINK_ROUTE); error < 0)
    throw std::runtime_error(fmt::format("cannot open a netlink socket: {}", nl_geterror(error)));
  // Asks for error messages, and for answers without a copy of the request. Older kernels ignore both options.
  const int on = 1;
  setsockopt(nl_socket_get_fd(socket_.get()), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
  setsockopt(nl_socket_get_fd(socket_.get()), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
}

void Netlink::add(Request request) {
  queue_.push_back(std::move(request));
  if (queue_.size() == kBatch) flush();
}

void Netlink::flush() {
  if (queue_.empty()) return;
  const std::vector<Request> sent = std::exchange(queue_, {});
  std::string batch;
  std::uint32_t first_number = 0;
  for (const Request& request : sent) {
    nl_complete_msg(socket_.get(), request.message.get());
    const nlmsghdr* header = nlmsg_hdr(request.message.get());
    if (batch.empty()) first_number = header->nlmsg_seq;
    batch.append(reinterpret_cast<const char*>(header), header->nlmsg_len);
    batch.resize(NLMSG_ALIGN(batch.size()));
  }
  discard_answers(nl_socket_get_fd(socket_.get()));
  if (const int error = nl_sendto(socket_.get(), batch.data(), batch.size()); error < 0)
    throw std::runtime_error(fmt::format("{}: netlink: {}", sent.front().purpose, nl_geterror(error)));

  std::string refused;
  for (std::size_t answered = 0; answered < sent.size();) {
    sockaddr_nl from = {};
    unsigned char* buffer = nullptr;
    int length = nl_recv(socket_.get(), &from, &buffer, nullptr);
    const std::unique_ptr<unsigned char, decltype(&std::free)> owner(buffer, std::free);
    if (length <= 0)
      throw std::runtime_error(fmt::format("{}: netlink: {}", sent.front().purpose,
                                           length == 0 ? "the kernel closed the socket" : nl_geterror(length)));
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); nlmsg_ok(header, length);
         header = nlmsg_next(header, &length)) {
      const std::uint32_t index = header->nlmsg_seq - first_number;
      if (header->nlmsg_type != NLMSG_ERROR || index >= sent.size()) continue;
      ++answered;
      const auto* error = static_cast<const nlmsgerr*>(nlmsg_data(header));
      if (error->error != 0 && -error->error != sent[index].accepted_error && refused.empty())
        refused = fmt::format("{}: {}", sent[index].purpose, reason_of(header, error));
    }
  }
  if (!refused.empty()) throw std::runtime_error(refused);
}

namespace {

Request new_request(int type, int flags, std::string purpose) {
  Request request{{nlmsg_alloc_simple(type, NLM_F_REQUEST | NLM_F_ACK | flags), nlmsg_free}, std::move(purpose)};
  if (!request.message) throw std::bad_alloc();
  return request;
}

// A message has room for a page, more than any request here needs, so appending fails only for lack of memory.
void check(int result) {
  if (result < 0) throw std::bad_alloc();
}

template <typename Header>
void append(const Request& request, const Header& header) {
  check(nlmsg_append(request.message.get(), const_cast<Header*>(&header), sizeof(header), NLMSG_ALIGNTO));
}

// A nested attribute. The destructor closes it.
class Nest {
 public:
  Nest(const Request& request, int type) : message_(request.message.get()), start_(nla_nest_start(message_, type)) {
    if (start_ == nullptr) throw std::bad_alloc();
  }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;
  ~Nest() { nla_nest_end(message_, start_); }

 private:
  nl_msg* message_;
  nlattr* start_;
};

void put_u32(const Request& request, int type, std::uint32_t value) {
  check(nla_put_u32(request.message.get(), type, value));
}

void put_string(const Request& request, int type, const std::string& value) {
  check(nla_put_string(request.message.get(), type, value.c_str()));
}

// Any plain value: a number in network order, a kernel structure.
template <typename Value>
void put_bytes(const Request& request, int type, const Value& value) {
  check(nla_put(request.message.get(), type, sizeof(value), &value));
}

void put_address(const Request& request, int type, topology::Ipv4Address address) {
  put_u32(request, type, htonl(address.value));
}

ifinfomsg interface_header(int index) {
  ifinfomsg header = {};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = index;
  return header;
}

ifaddrmsg address_header(int index, int prefix_length) {
  ifaddrmsg header = {};
  header.ifa_family = AF_INET;
  header.ifa_prefixlen = static_cast<std::uint8_t>(prefix_length);
  header.ifa_index = static_cast<std::uint32_t>(index);
  return header;
}

void put_veth_end(const Request& request, const VethEnd& end, int mtu_bytes) {
  put_string(request, IFLA_IFNAME, end.name);
  put_u32(request, IFLA_NET_NS_FD, static_cast<std::uint32_t>(end.namespace_fd));
  put_u32(request, IFLA_MTU, static_cast<std::uint32_t>(mtu_bytes));
  if (end.mac) put_bytes(request, IFLA_ADDRESS, *end.mac);
}

}  // namespace

MacAddress mac_of(topology::Ipv4Address address) {
  const auto byte = [&](int shift) { return static_cast<std::uint8_t>(address.value >> shift); };
  return {2, 0, byte(24), byte(16), byte(8), byte(0)};  // 2: locally administered
}

Request veth_request(const VethEnd& a, const VethEnd& b, int mtu_bytes, std::string purpose) {
  Request request = new_request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, std::move(purpose));
  append(request, interface_header(a.index));
  put_veth_end(request, a, mtu_bytes);
  const Nest link_info(request, IFLA_LINKINFO);
  put_string(request, IFLA_INFO_KIND, "veth");
  const Nest kind(request, IFLA_INFO_DATA);
  const Nest peer(request, VETH_INFO_PEER);
  append(request, interface_header(b.index));
  put_veth_end(request, b, mtu_bytes);
  return request;
}

Request bridge_request(int index, const std::string& name, int mtu_bytes, std::string purpose) {
  Request request = new_request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, std::move(purpose));
  append(request, interface_header(index));
  put_string(request, IFLA_IFNAME, name);
  put_u32(request, IFLA_MTU, static_cast<std::uint32_t>(mtu_bytes));
  const Nest link_info(request, IFLA_LINKINFO);
  put_string(request, IFLA_INFO_KIND, "bridge");
  return request;
}

Request up_request(int index, bool up, std::string purpose) {
  Request request = new_request(RTM_NEWLINK, 0, std::move(purpose));
  ifinfomsg header = interface_header(index);
  header.ifi_change = IFF_UP;
  header.ifi_flags = up ? IFF_UP : 0;
  append(request, header);
  return request;
}

Request delete_request(int index, std::string purpose) {
  Request request = new_request(RTM_DELLINK, 0, std::move(purpose));
  append(request, interface_header(index));
  return request;
}

Request mtu_request(int index, int mtu_bytes, std::string purpose) {
  Request request = new_request(RTM_NEWLINK, 0, std::move(purpose));
  append(request, interface_header(index));
  put_u32(request, IFLA_MTU, static_cast<std::uint32_t>(mtu_bytes));
  return request;
}

Request port_request(int index, int bridge_index, std::string purpose) {
  Request request = up_request(index, true, std::move(purpose));
  put_u32(request, IFLA_MASTER, static_cast<std::uint32_t>(bridge_index));
  return request;
}

Request address_request(int index, topology::Ipv4Address address, int prefix_length, std::string purpose) {
  Request request = new_request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, std::move(purpose));
  append(request, address_header(index, prefix_length));
  put_address(request, IFA_LOCAL, address);
  put_address(request, IFA_ADDRESS, address);
  const std::uint32_t host_part = prefix_length == 0 ? ~0u : ~(~0u << (32 - prefix_length));
  put_u32(request, IFA_BROADCAST, htonl(address.value | host_part));
  return request;
}

Request remove_address_request(int index, topology::Ipv4Address address, int prefix_length, std::string purpose) {
  Request request = new_request(RTM_DELADDR, 0, std::move(purpose));
  append(request, address_header(index, prefix_length));
  put_address(request, IFA_LOCAL, address);
  request.accepted_error = EADDRNOTAVAIL;
  return request;
}

Request neighbor_request(int index, topology::Ipv4Address neighbor, std::string purpose) {
  Request request = new_request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, std::move(purpose));
  ndmsg header = {};
  header.ndm_family = AF_INET;
  header.ndm_ifindex = index;
  header.ndm_state = NUD_PERMANENT;
  append(request, header);
  put_address(request, NDA_DST, neighbor);
  put_bytes(request, NDA_LLADDR, mac_of(neighbor));
  return request;
}

Request arp_request(int index, std::chrono::milliseconds interval, std::uint32_t probes, std::string purpose) {
  Request request = new_request(RTM_SETNEIGHTBL, 0, std::move(purpose));
  ndtmsg header = {};
  header.ndtm_family = AF_INET;
  append(request, header);
  put_string(request, NDTA_NAME, "arp_cache");
  const Nest parameters(request, NDTA_PARMS);
  put_u32(request, NDTPA_IFINDEX, static_cast<std::uint32_t>(index));
  put_bytes(request, NDTPA_RETRANS_TIME, static_cast<std::uint64_t>(interval.count()));
  put_u32(request, NDTPA_MCAST_PROBES, probes);
  put_u32(request, NDTPA_UCAST_PROBES, probes);
  return request;
}

Request route_request(const topology::Subnet& to, const std::vector<NextHop>& hops, std::uint32_t table,
                      std::string purpose) {
  Request request = new_request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, std::move(purpose));
  rtmsg header = {};
  header.rtm_family = AF_INET;
  header.rtm_dst_len = static_cast<std::uint8_t>(to.prefix_length);
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_scope = RT_SCOPE_UNIVERSE;
  header.rtm_type = RTN_UNICAST;
  append(request, header);
  put_u32(request, RTA_TABLE, table);
  if (to.prefix_length > 0) put_address(request, RTA_DST, to.network);
  if (hops.size() == 1) {
    put_address(request, RTA_GATEWAY, hops[0].gateway);
    put_u32(request, RTA_OIF, static_cast<std::uint32_t>(hops[0].index));
    return request;
  }
  const Nest multipath(request, RTA_MULTIPATH);
  for (const NextHop& hop : hops) {
    // A header followed by its own attributes; rtnh_len covers both.
    auto* start = static_cast<rtnexthop*>(nlmsg_reserve(request.message.get(), sizeof(rtnexthop), NLMSG_ALIGNTO));
    if (start == nullptr) throw std::bad_alloc();
    *start = {};
    start->rtnh_ifindex = hop.index;
    put_address(request, RTA_GATEWAY, hop.gateway);
    const char* end = static_cast<const char*>(nlmsg_tail(nlmsg_hdr(request.message.get())));
    start->rtnh_len = static_cast<unsigned short>(end - reinterpret_cast<const char*>(start));
  }
  return request;
}

Request source_rule_request(topology::Ipv4Address source, std::uint32_t table, std::string purpose) {
  Request request = new_request(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, std::move(purpose));
  fib_rule_hdr header = {};
  header.family = AF_INET;
  header.src_len = 32;
  header.action = FR_ACT_TO_TBL;
  append(request, header);
  put_address(request, FRA_SRC, source);
  put_u32(request, FRA_TABLE, table);
  return request;
}

Request rate_request(int index, std::uint64_t bits_per_second, int mtu_bytes, std::string purpose) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  const std::uint64_t bytes_per_second = std::max<std::uint64_t>(bits_per_second / 8, 1);
  // A bucket smaller than a few packets would split every GSO batch.
  const std::uint64_t burst = std::max(bytes_per_second / 1000, std::uint64_t{10} * static_cast<unsigned>(mtu_bytes));
  const std::uint64_t limit = std::max<std::uint64_t>(bytes_per_second / 50, 4u << 20);

  Request request = new_request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, std::move(purpose));
  tcmsg header = {};
  header.tcm_family = AF_UNSPEC;
  header.tcm_ifindex = index;
  header.tcm_handle = TC_H_MAKE(1u << 16, 0);
  header.tcm_parent = TC_H_ROOT;
  append(request, header);
  put_string(request, TCA_KIND, "tbf");
  const Nest options(request, TCA_OPTIONS);
  tc_tbf_qopt parameters = {};
  parameters.rate.linklayer = TC_LINKLAYER_ETHERNET;
  parameters.rate.rate = static_cast<std::uint32_t>(std::min(bytes_per_second, kMax));
  parameters.limit = static_cast<std::uint32_t>(std::min(limit, kMax));
  put_bytes(request, TCA_TBF_PARMS, parameters);
  if (bytes_per_second > kMax) put_bytes(request, TCA_TBF_RATE64, bytes_per_second);
  put_u32(request, TCA_TBF_BURST, static_cast<std::uint32_t>(std::min(burst, kMax)));
  return request;
}

}  // namespace plugfest::netns
