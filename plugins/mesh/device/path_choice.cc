// Finds the paths from the NICs to a peer.
#include "plugins/mesh/device/path_choice.h"

#include <utility>

namespace mesh {

std::vector<LocalAddress> local_addresses(const DeviceList& devices) {
  std::vector<LocalAddress> addresses;
  for (std::size_t device = 0; device < devices.size(); ++device) {
    for (const DeviceAddress& each : devices[device]->gids().addresses()) addresses.push_back({each.network, device});
  }
  return addresses;
}

PathChoice::PathChoice(DeviceList devices, std::vector<std::size_t> requested)
    : devices_(std::move(devices)), requested_(std::move(requested)) {}

void PathChoice::find(const std::vector<PeerAddress>& peer) {
  paths_ = find_paths(local_addresses(devices_), requested_, peer, kernel_route);
  current_ = 0;
  if (paths_.empty() && refresh()) find(peer);
}

void PathChoice::add(const Address& local, const Address& peer) {
  paths_.push_back({.device = requested_.front(), .local = local, .peer = peer});
}

bool PathChoice::next() {
  if (current_ + 1 >= paths_.size()) return false;
  ++current_;
  return true;
}

// The NICs were found at init, and their addresses may have changed since.
bool PathChoice::refresh() {
  if (std::exchange(refreshed_, true)) return false;
  for (const std::shared_ptr<const Device>& each : devices_) each->gids().refresh();
  return true;
}

}  // namespace mesh
