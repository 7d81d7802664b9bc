#include "fabric/roce/verbs/device/change_monitor.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace plugfest::roce::verbs {

ChangeMonitor::ChangeMonitor()
    : netlink_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), owner_(getpid()) {
  if (!netlink_) throw_errno("create an rtnetlink socket");
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(netlink_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw_errno("join the rtnetlink groups");
}

bool ChangeMonitor::take_changes() {
  if (getpid() != owner_) return true;
  bool changed = false;
  char notification[8192];
  // ENOBUFS: notifications were lost.
  while (recv(netlink_.get(), notification, sizeof(notification), MSG_DONTWAIT) > 0 || errno == ENOBUFS) changed = true;
  return changed;
}

}  // namespace plugfest::roce::verbs
