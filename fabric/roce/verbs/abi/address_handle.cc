// Address handles, and their creation from a received datagram.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"
#include "fabric/roce/verbs/device/interface.h"

namespace plugfest::roce::verbs {
namespace {

// Addresses from the 40 bytes before a received datagram: an IPv6 header, or 20 zero bytes and an IPv4 header
// (InfiniBand Architecture Specification vol. 1, Annex A17).
struct Sender {
  Address address;
  Address local;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
};

std::optional<Sender> sender_of(const ibv_grh* grh) {
  ip6_hdr ipv6 = {};
  std::memcpy(&ipv6, grh, sizeof(ipv6));
  const std::uint32_t flow = ntohl(ipv6.ip6_flow);
  if (flow >> 28 == 6)
    return Sender{ipv6.ip6_src, ipv6.ip6_dst, static_cast<std::uint8_t>(flow >> 20), flow & 0xfffffu};
  iphdr ipv4 = {};
  std::memcpy(&ipv4, reinterpret_cast<const std::byte*>(grh) + sizeof(ibv_grh) - sizeof(ipv4), sizeof(ipv4));
  if (ipv4.version != 4 || ipv4.ihl != sizeof(ipv4) / 4) return std::nullopt;
  return Sender{in_addr{ipv4.saddr}, in_addr{ipv4.daddr}, ipv4.tos, 0};
}

}  // namespace

Ah::Ah(Pd& domain, const ibv_ah_attr& attributes)
    : AddressHandle(domain.owner->nic->context(), domain.engine, attributes),
      owner(*domain.owner),
      allocation(owner->device, limits::Kind::kAddressHandle),
      pd_reference(domain.references) {
  context = domain.context;
  pd = &domain;
}

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return pointer_or_errno([&]() -> ibv_ah* {
    if (attr->port_num != kPortNumber) fail(EINVAL);
    return new Ah(pd_of(pd), *attr);
  });
}

int ibv_destroy_ah(ibv_ah* ah) {
  delete static_cast<Ah*>(ah);
  return 0;
}

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* ah_attr) {
  return value_or_errno([&] {
    std::memset(ah_attr, 0, sizeof(*ah_attr));
    ah_attr->sl = wc->sl;
    ah_attr->port_num = port_num;
    if ((wc->wc_flags & IBV_WC_GRH) == 0) fail(EINVAL);  // only the GRH holds the address
    const std::optional<Sender> sender = sender_of(grh);
    if (!sender) fail(EPROTONOSUPPORT);
    const ibv_gid local = sender->local.gid();
    for (int index = 0;; ++index) {
      ibv_gid gid = {};
      if (ibv_query_gid(context, port_num, index, &gid) != 0) return -1;
      if (std::memcmp(&gid, &local, sizeof(gid)) != 0) continue;
      ah_attr->grh.sgid_index = static_cast<std::uint8_t>(index);
      break;
    }
    ah_attr->is_global = 1;
    ah_attr->grh.dgid = sender->address.gid();
    ah_attr->grh.hop_limit = 0xff;
    ah_attr->grh.traffic_class = sender->traffic_class;
    ah_attr->grh.flow_label = sender->flow_label;
    return 0;
  });
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  ibv_ah_attr attributes = {};
  if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attributes) != 0) return nullptr;
  return ibv_create_ah(pd, &attributes);
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
