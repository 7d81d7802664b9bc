// A notification only triggers a comparison of two snapshots of the interface. The next notification therefore makes up
// for lost ones (ENOBUFS).
#include "fabric/roce/verbs/device/port_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "fabric/system/blocked_signals.h"

namespace plugfest::roce::verbs {
namespace {

Descriptor open_netlink_socket() {
  Descriptor descriptor(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!descriptor) throw_errno("create an rtnetlink socket");
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw_errno("join the rtnetlink groups");
  return descriptor;
}

}  // namespace

PortWatch::PortWatch(int interface_index, OnChange on_change, OnEvent on_event)
    : interface_index_(interface_index),
      on_change_(std::move(on_change)),
      on_event_(std::move(on_event)),
      netlink_(open_netlink_socket()),
      stop_(eventfd(0, EFD_CLOEXEC)),
      owner_(getpid()) {
  if (!stop_) throw_errno("create an event descriptor");
  if (std::optional<Interface> now = read_nic_interface(interface_index_)) last_ = *std::move(now);
  const BlockedSignals blocked;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "roce-port");
    watch();
  });
}

PortWatch::~PortWatch() {
  if (getpid() == owner_) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  } else {
    thread_.detach();  // child after fork(): the thread exists in the parent only
  }
}

void PortWatch::watch() {
  for (;;) {
    pollfd descriptors[] = {{netlink_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(descriptors, 2, -1) < 0) continue;
    if (descriptors[1].revents != 0) return;
    char notification[8192];
    while (recv(netlink_.get(), notification, sizeof(notification), MSG_DONTWAIT) > 0 || errno == ENOBUFS) {
    }
    try {
      compare();
    } catch (...) {
      // The interface cannot be read now. The next notification tries again.
    }
  }
}

void PortWatch::compare() {
  std::optional<Interface> now = read_nic_interface(interface_index_);
  if (!now) {
    now = last_;
    now->up = false;
    now->addresses.clear();
  }
  const Interface before = std::exchange(last_, *std::move(now));
  on_change_(last_);
  if (last_.up != before.up) on_event_(last_.up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  if (last_.addresses != before.addresses) on_event_(IBV_EVENT_GID_CHANGE);
}

}  // namespace plugfest::roce::verbs
