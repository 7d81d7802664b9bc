// The multicast groups of datagram queue pairs.
#include <algorithm>
#include <cerrno>

#include "fabric/roce/qp/queue_pair.h"

namespace plugfest::roce {

int QueuePair::attach(const Address& group) {
  if (nic_.lock.in_child()) return EIO;
  if (settings_.type != IBV_QPT_UD || !group.is_multicast()) return EINVAL;
  const std::lock_guard lock(nic_.lock);
  if (!nic_.ports.supports_multicast()) return EOPNOTSUPP;
  QueuePairTable::Groups& groups = nic_.queue_pairs.groups();
  if (groups.size() == kMaxGroups && !groups.contains(group)) return ENOMEM;
  std::vector<QueuePair*>& members = groups[group];
  if (std::find(members.begin(), members.end(), this) != members.end()) return 0;
  if (members.size() == kMaxGroupMembers) return ENOMEM;
  members.push_back(this);
  try {
    nic_.ports.port(group);
  } catch (...) {
    leave(group);
    throw;
  }
  return 0;
}

int QueuePair::detach(const Address& group) {
  if (nic_.lock.in_child()) return EIO;
  const std::lock_guard lock(nic_.lock);
  return leave(group) ? 0 : EINVAL;
}

bool QueuePair::in_group() const {
  if (settings_.type != IBV_QPT_UD || nic_.lock.in_child()) return false;
  const std::lock_guard lock(nic_.lock);
  const QueuePairTable::Groups& groups = nic_.queue_pairs.groups();
  return std::any_of(groups.begin(), groups.end(), [this](const auto& group) {
    return std::find(group.second.begin(), group.second.end(), this) != group.second.end();
  });
}

bool QueuePair::leave(const Address& group) {
  QueuePairTable::Groups& groups = nic_.queue_pairs.groups();
  const auto found = groups.find(group);
  if (found == groups.end() || std::erase(found->second, this) == 0) return false;
  if (!found->second.empty()) return true;
  groups.erase(found);
  nic_.ports.close_group(group);
  return true;
}

}  // namespace plugfest::roce
