// Opens ports and answers questions about addresses and MTU.
#include "fabric/roce/port/port_set.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace plugfest::roce {

PortSet::PortSet(Settings settings, Wakeup& wakeup)
    : settings_(std::move(settings)), wakeup_(wakeup), rate_limiter_(settings_.rate_mbps) {
  if (settings_.addresses.empty()) throw std::system_error(EINVAL, std::generic_category(), "NIC without an address");
}

void PortSet::open() {
  if (!slot_) slot_.emplace(settings_.addresses.front());
  if (ports_.empty()) open_port(settings_.addresses.front());
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
  constexpr std::uint64_t kMax = 1 << 20;  // larger windows are not faster
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

void PortSet::close_in_child() {
  for (const auto& port : ports_) port->close_in_child();
  if (slot_) slot_->close_in_child();
}

}  // namespace plugfest::roce
