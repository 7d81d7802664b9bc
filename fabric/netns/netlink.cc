// Batches of routing netlink requests, and the requests that a fabric needs.
#include "fabric/netns/netlink.h"

#include <fmt/format.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netlink/attr.h>
#include <netlink/socket.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace plugfest::netns {
namespace {

// Answers wait in the socket's receive buffer, 212992 bytes by default, where each counts for about 1 KiB.
constexpr std::size_t kBatch = 64;

Request new_request(int type, int flags, std::string purpose) {
  Request request{{nlmsg_alloc_simple(type, NLM_F_REQUEST | NLM_F_ACK | flags), nlmsg_free}, std::move(purpose)};
  if (!request.message) throw std::bad_alloc();
  return request;
}

// A message has room for a page, far more than any request here takes; so only lack of memory could make these fail.
void check(int result) {
  if (result < 0) throw std::bad_alloc();
}

template <typename Header>
void append(const Request& request, const Header& header) {
  check(nlmsg_append(request.message.get(), const_cast<Header*>(&header), sizeof(header), NLMSG_ALIGNTO));
}

// An attribute that holds others; it is closed by the destructor.
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

ifinfomsg interface_header(int index) {
  ifinfomsg header = {};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = index;
  return header;
}

void put_veth_end(const Request& request, const VethEnd& end, int mtu_bytes) {
  put_string(request, IFLA_IFNAME, end.name);
  put_u32(request, IFLA_NET_NS_FD, static_cast<std::uint32_t>(end.namespace_fd));
  put_u32(request, IFLA_MTU, static_cast<std::uint32_t>(mtu_bytes));
}

// The kernel's reason: its own words where it gives them, else the errno's.
std::string reason_of(const nlmsghdr* header, const nlmsgerr* error) {
  std::string reason = std::strerror(-error->error);
  if ((header->nlmsg_flags & NLM_F_ACK_TLVS) != 0) {
    // The attributes follow the request, of which only the header is repeated if the answer is capped.
    std::size_t offset = sizeof(nlmsgerr);
    if ((header->nlmsg_flags & NLM_F_CAPPED) == 0) offset += NLMSG_ALIGN(error->msg.nlmsg_len) - sizeof(nlmsghdr);
    if (NLMSG_LENGTH(offset) <= header->nlmsg_len) {
      const char* payload = static_cast<const char*>(nlmsg_data(header));
      auto* attributes = reinterpret_cast<nlattr*>(const_cast<char*>(payload + offset));
      const int length = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(offset));
      if (const nlattr* words = nla_find(attributes, length, NLMSGERR_ATTR_MSG)) {
        reason += fmt::format(" ({})", nla_get_string(words));
      }
    }
  }
  return reason;
}

}  // namespace

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

Request port_request(int index, int bridge_index, std::string purpose) {
  Request request = up_request(index, true, std::move(purpose));
  put_u32(request, IFLA_MASTER, static_cast<std::uint32_t>(bridge_index));
  return request;
}

Request address_request(int index, topology::Ipv4Address address, int prefix_length, std::string purpose) {
  Request request = new_request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, std::move(purpose));
  ifaddrmsg header = {};
  header.ifa_family = AF_INET;
  header.ifa_prefixlen = static_cast<std::uint8_t>(prefix_length);
  header.ifa_index = static_cast<std::uint32_t>(index);
  append(request, header);
  put_u32(request, IFA_LOCAL, htonl(address.value));
  put_u32(request, IFA_ADDRESS, htonl(address.value));
  const std::uint32_t host_part = prefix_length == 0 ? ~0u : ~(~0u << (32 - prefix_length));
  put_u32(request, IFA_BROADCAST, htonl(address.value | host_part));
  return request;
}

Netlink::Netlink() : socket_(nl_socket_alloc(), nl_socket_free) {
  if (!socket_) throw std::bad_alloc();
  if (const int error = nl_connect(socket_.get(), NETLINK_ROUTE); error < 0) {
    throw std::runtime_error(fmt::format("cannot open a netlink socket: {}", nl_geterror(error)));
  }
  // Reasons in words, and no copy of the request in an answer; kernels without them answer all the same.
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
  if (const int error = nl_sendto(socket_.get(), batch.data(), batch.size()); error < 0) {
    throw std::runtime_error(fmt::format("{}: netlink: {}", sent.front().purpose, nl_geterror(error)));
  }

  std::string refused;
  for (std::size_t answered = 0; answered < sent.size();) {
    sockaddr_nl from = {};
    unsigned char* buffer = nullptr;
    int length = nl_recv(socket_.get(), &from, &buffer, nullptr);
    const std::unique_ptr<unsigned char, decltype(&std::free)> owner(buffer, std::free);
    if (length <= 0) {
      throw std::runtime_error(fmt::format("{}: netlink: {}", sent.front().purpose, nl_geterror(length)));
    }
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); nlmsg_ok(header, length);
         header = nlmsg_next(header, &length)) {
      if (header->nlmsg_type != NLMSG_ERROR) continue;
      ++answered;
      const auto* error = static_cast<const nlmsgerr*>(nlmsg_data(header));
      if (error->error != 0 && refused.empty()) {
        refused = fmt::format("{}: {}", sent.at(header->nlmsg_seq - first_number).purpose, reason_of(header, error));
      }
    }
  }
  if (!refused.empty()) throw std::runtime_error(refused);
}

int interface_index(const std::string& name) { return static_cast<int>(if_nametoindex(name.c_str())); }

}  // namespace plugfest::netns
