// Address handles, and the address of whoever sent a datagram.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "fabric/roce/verbs/abi_edge.h"
#include "fabric/roce/verbs/objects.h"
#include "fabric/roce/verbs/port.h"

namespace plugfest::roce::verbs {
namespace {

// RoCEv2 over IPv4: the 40 bytes before a datagram hold the IPv4 header in their last 20. It starts with 0x45, where a
// GRH as InfiniBand has it starts with 0x6.
struct Ipv4InGrh {
  std::uint8_t unused[20];
  std::uint8_t version_and_length;
  std::uint8_t type_of_service;
  std::uint8_t between[10];
  in_addr source;
  in_addr destination;
};
static_assert(sizeof(Ipv4InGrh) == sizeof(ibv_grh));

}  // namespace

Handle::Handle(Domain& domain, const ibv_ah_attr& attributes)
    : AddressHandle(domain.engine, attributes), owner(*domain.owner), of_domain(domain.users) {
  context = domain.context;
  pd = &domain;
}

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return pointer_or_errno([&]() -> ibv_ah* {
    if (attr->port_num != kPortNumber) fail(EINVAL);
    return new Handle(domain_of(pd), *attr);
  });
}

int ibv_destroy_ah(ibv_ah* ah) {
  delete static_cast<Handle*>(ah);
  return 0;
}

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* ah_attr) {
  return value_or_errno([&] {
    std::memset(ah_attr, 0, sizeof(*ah_attr));
    ah_attr->sl = wc->sl;
    ah_attr->port_num = port_num;
    if ((wc->wc_flags & IBV_WC_GRH) == 0) fail(EINVAL);  // there is no address without one
    Ipv4InGrh header = {};
    std::memcpy(&header, grh, sizeof(header));
    constexpr std::uint8_t kIpv4WithoutOptions = 0x45;
    if (header.version_and_length != kIpv4WithoutOptions) fail(EPROTONOSUPPORT);
    const ibv_gid local = gid_of(header.destination);
    for (int index = 0;; ++index) {
      ibv_gid gid = {};
      if (ibv_query_gid(context, port_num, index, &gid) != 0) return -1;
      if (std::memcmp(&gid, &local, sizeof(gid)) != 0) continue;
      ah_attr->grh.sgid_index = static_cast<std::uint8_t>(index);
      break;
    }
    ah_attr->is_global = 1;
    ah_attr->grh.dgid = gid_of(header.source);
    ah_attr->grh.hop_limit = 0xff;
    ah_attr->grh.traffic_class = header.type_of_service;
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
