#include "fabric/roce/port/port_set.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {
namespace {

// Precedes forwarded packets.
struct Envelope {
  Arrival arrival;
  std::uint32_t segment_bytes = 0;
};

struct Name {
  sockaddr_un address = {};
  socklen_t length = 0;
};

Name name_of(const std::string& place, unsigned slot) {
  Name name;
  name.address.sun_family = AF_UNIX;
  // An abstract name begins with a zero byte and has no terminating zero.
  const int written = std::snprintf(name.address.sun_path + 1, sizeof(name.address.sun_path) - 1, "plugfest-roce-%s-%u",
                                    place.c_str(), slot);
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(written));
  return name;
}

}  // namespace

ProcessSlot::ProcessSlot(std::string place)
    : place_(std::move(place)), descriptor_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  if (!descriptor_) throw_errno("create a Unix socket");
  for (unsigned slot = PortMap::kFirstSlot; slot < PortMap::kProbeSlot; ++slot) {
    const Name name = name_of(place_, slot);
    if (bind(descriptor_.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) == 0) {
      number_ = static_cast<std::uint8_t>(slot);
      return;
    }
    if (errno != EADDRINUSE) throw_errno("bind a Unix socket");
  }
  throw std::runtime_error("more than 254 processes use RoCE on " + place_ + ": end some of them");
}

ProcessSlot::Forwarding ProcessSlot::forward(std::uint8_t owner, const ReceivedBatch& batch) const {
  Envelope envelope = {batch.arrival, static_cast<std::uint32_t>(batch.segment_bytes)};
  iovec parts[] = {{&envelope, sizeof(envelope)}, {const_cast<std::byte*>(batch.bytes), batch.length}};
  Name name = name_of(place_, owner);
  msghdr message = {};
  message.msg_name = &name.address;
  message.msg_namelen = name.length;
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (send_message(descriptor_.get(), message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Forwarding::kDone;
  return errno == ECONNREFUSED ? Forwarding::kNoSuchProcess : Forwarding::kQueueFull;
}

bool ProcessSlot::receive(std::byte* buffer, ReceivedBatch& batch) const {
  Envelope envelope;
  iovec parts[] = {{&envelope, sizeof(envelope)}, {buffer, UdpPort::kReceiveBytes}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t received = receive_message(descriptor_.get(), message, MSG_DONTWAIT);
  if (received < static_cast<ssize_t>(sizeof(envelope))) return false;
  batch.bytes = buffer;
  batch.length = static_cast<std::size_t>(received) - sizeof(envelope);
  batch.segment_bytes = envelope.segment_bytes;
  batch.arrival = envelope.arrival;
  return true;
}

PortSet::PortSet(Settings settings, Wakeup& wakeup)
    : settings_(std::move(settings)), wakeup_(wakeup), rate_limiter_(settings_.rate_mbps) {
  if (settings_.addresses.empty()) throw_errno("create a NIC without an address", EINVAL);
}

// The addresses of an interface may change while processes share it. The hosts of a loopback fabric, which never change
// their addresses, share an interface.
void PortSet::open() {
  const auto used = std::ranges::find_if(settings_.addresses, [](const Address& entry) { return entry != Address(); });
  if (used == settings_.addresses.end()) throw_errno("open a NIC whose interface has no address", EADDRNOTAVAIL);
  if (!slot_)
    slot_.emplace(used->is_loopback() ? text_of(*used) : "interface " + std::to_string(settings_.interface_index));
  if (ports_.empty()) open_port(*used);
}

std::optional<Address> PortSet::address(unsigned gid_index) const {
  const std::vector<Address>& addresses = settings_.addresses;
  if (gid_index >= addresses.size() || addresses[gid_index] == Address()) return std::nullopt;
  return addresses[gid_index];
}

UdpPort& PortSet::port(const Address& address) {
  for (const auto& port : ports_)
    if (port->address() == address) return *port;
  UdpPort& opened = open_port(address);
  wakeup_.wake();
  return opened;
}

void PortSet::close_group(const Address& group) {
  std::erase_if(ports_, [&](const auto& port) { return port->address() == group; });
}

UdpPort& PortSet::open_port(const Address& address) {
  auto made = std::make_unique<UdpPort>(address, settings_.interface_index);
  if (settings_.ecn) made->report_traffic_class();
  if (all_open_) made->report_headers();
  return *ports_.emplace_back(std::move(made));
}

void PortSet::open_all() {
  if (!all_open_)
    for (const auto& port : ports_) port->report_headers();
  all_open_ = true;
  for (const Address& address : settings_.addresses) {
    if (address == Address()) continue;
    try {
      port(address);
    } catch (const std::system_error&) {
    }
  }
}

void PortSet::set_addresses(std::vector<Address> in_gid_order) {
  if (in_gid_order.empty() || in_gid_order == settings_.addresses) return;
  settings_.addresses = std::move(in_gid_order);
  if (all_open_) open_all();
}

ibv_mtu PortSet::largest_path_mtu() const {
  constexpr int kHeaderAllowanceBytes = 80;  // IP, UDP and the longest RoCE headers, as the kernel's rxe counts them
  for (const ibv_mtu mtu : {IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512})
    if ((128 << mtu) <= settings_.mtu_bytes - kHeaderAllowanceBytes) return mtu;
  return IBV_MTU_256;
}

std::uint64_t PortSet::largest_congestion_window_bytes() const {
  constexpr std::uint64_t kMin = 64 << 10;
  constexpr std::uint64_t kMax = 1 << 20;  // larger congestion windows are not faster
  return std::clamp<std::uint64_t>(ports_.front()->receive_buffer_bytes() / 4, kMin, kMax);
}

void PortSet::list_descriptors(std::vector<int>& readable, std::vector<int>& writable) const {
  readable.push_back(slot_->descriptor());
  for (const auto& port : ports_) {
    readable.push_back(port->receive_descriptor());
    port->list_blocked_senders(writable);
  }
}

bool PortSet::unblock_senders() {
  bool unblocked = false;
  for (const auto& port : ports_)
    if (port->unblock_senders()) unblocked = true;
  return unblocked;
}

std::uint64_t PortSet::new_buffer_drops() {
  std::uint64_t drops = 0;
  for (const auto& port : ports_) drops += port->new_buffer_drops();
  return drops;
}

void PortSet::close_sockets() {
  for (const auto& port : ports_) port->close_in_child();
  if (slot_) slot_->close_in_child();
}

}  // namespace plugfest::roce
