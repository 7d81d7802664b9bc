// The multicast groups of identifiers.
#include "fabric/rdma_cm/error.h"
#include "fabric/rdma_cm/manager.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::rdma_cm {
std::uint32_t Manager::join(std::uint32_t handle, std::uint64_t uid, const Address& group) {
  Identifier& identifier = get(handle);
  const bool may_join = identifier.state == State::kBound || identifier.state == State::kAddressResolved;
  if (!may_join || !identifier.route.device || !group.is_multicast()) fail(EINVAL);
  const std::uint32_t membership = ++last_handle_;
  identifier.memberships[membership] = {.uid = uid};
  Event event;
  event.owner = event.response.id = membership;
  event.response.uid = uid;
  event.response.event = static_cast<std::uint32_t>(EventType::kMulticastJoin);
  rdma_ucm_ud_param& parameters = event.response.param.ud;
  parameters.qp_num = roce::kMulticastNumber;
  parameters.qkey = kDatagramQkey;
  parameters.ah_attr = address_vector(identifier, group);
  identifier.channel->push(event);
  return membership;
}

std::uint32_t Manager::leave(std::uint32_t membership) {
  for (auto& [handle, identifier] : identifiers_) {
    const auto found = identifier.memberships.find(membership);
    if (found == identifier.memberships.end()) continue;
    identifier.channel->remove_events_of(membership);
    const std::uint32_t reported = found->second.events_reported;
    identifier.memberships.erase(found);
    return reported;
  }
  fail(EINVAL);
}

std::uint32_t& Manager::events_reported_to(std::uint32_t owner) {
  const auto found = identifiers_.find(owner);
  if (found != identifiers_.end()) return found->second.events_reported;
  for (auto& [handle, identifier] : identifiers_) {
    const auto membership = identifier.memberships.find(owner);
    if (membership != identifier.memberships.end()) return membership->second.events_reported;
  }
  fail(EINVAL);
}

}  // namespace plugfest::rdma_cm
