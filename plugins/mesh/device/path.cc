#include "plugins/mesh/device/path.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace mesh {

namespace {

bool contains(const std::vector<std::size_t>& devices, std::size_t device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

// A lower cost is better.
int cost(const LocalAddress& local, const std::vector<std::size_t>& requested, const PeerAddress& peer) {
  return (contains(requested, local.device) ? 0 : 2) + (peer.of_listening_device ? 0 : 1);
}

constexpr std::uint16_t kDiscardPort = 9;

}  // namespace

std::vector<Path> find_paths(const std::vector<LocalAddress>& local, const std::vector<std::size_t>& requested,
                             const std::vector<PeerAddress>& peer, const RouteLookup& route) {
  struct Ranked {
    int cost;
    Path path;
  };
  std::vector<Ranked> ranked;
  const auto add = [&](const LocalAddress& from, const PeerAddress& to) {
    ranked.push_back({cost(from, requested, to),
                      {.device = from.device,
                       .local = from.network.address,
                       .peer = to.network.address,
                       .one_subnet = on_one_subnet(from.network, to.network)}});
  };

  const auto reaches = [](const LocalAddress& from, const PeerAddress& to) {
    return on_one_subnet(from.network, to.network);
  };
  std::vector<int> longest(peer.size(), -1);  // prefix length, of the subnets of this host that contain each address
  for (std::size_t i = 0; i < peer.size(); ++i) {
    for (const LocalAddress& from : local)
      if (reaches(from, peer[i])) longest[i] = std::max(longest[i], from.network.prefix);
  }
  for (const LocalAddress& from : local) {
    for (std::size_t i = 0; i < peer.size(); ++i)
      if (from.network.prefix == longest[i] && reaches(from, peer[i])) add(from, peer[i]);
  }
  if (ranked.empty()) {
    for (const PeerAddress& to : peer) {
      const std::optional<Address> source = route(to.network.address);
      if (!source) continue;
      for (const LocalAddress& from : local)
        if (from.network.address == *source) add(from, to);
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& path, const Ranked& other) { return path.cost < other.cost; });
  std::vector<Path> paths;
  for (const Ranked& candidate : ranked) paths.push_back(candidate.path);
  return paths;
}

std::vector<Path> parallel_paths(const std::vector<Path>& paths, std::size_t chosen,
                                 const std::vector<std::size_t>& requested, std::size_t most) {
  std::vector<Path> taken = {paths[chosen]};
  for (const Path& path : paths) {
    const bool same_device = contains(requested, path.device) == contains(requested, paths[chosen].device);
    if (requested.size() > 1 && !same_device) continue;
    const bool disjoint = std::all_of(taken.begin(), taken.end(), [&](const Path& other) {
      return other.one_subnet && other.device != path.device && other.peer != path.peer;
    });
    if (taken.size() < most && path.one_subnet && disjoint) taken.push_back(path);
  }
  return taken;
}

std::optional<Address> kernel_route(const Address& peer) {
  const SocketAddress target(peer, kDiscardPort);
  const int fd = socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  std::optional<Address> source;
  SocketAddress local;
  local.size = sizeof local.storage;
  if (connect(fd, target.get(), target.size) == 0 && getsockname(fd, local.get(), &local.size) == 0)
    source = from_sockaddr(local.get());
  close(fd);
  return source;
}

std::string subnets_text(const std::vector<NetworkAddress>& addresses) {
  std::vector<std::string> subnets;
  for (const NetworkAddress& address : addresses) {
    const std::string subnet = subnet_text(address);
    if (std::find(subnets.begin(), subnets.end(), subnet) == subnets.end()) subnets.push_back(subnet);
  }
  std::string text;
  for (const std::string& subnet : subnets) text += (text.empty() ? "" : ", ") + subnet;
  return text.empty() ? "none" : text;
}

std::vector<LocalAddress> local_addresses(const DeviceList& devices) {
  std::vector<LocalAddress> addresses;
  for (std::size_t device = 0; device < devices.size(); ++device)
    for (const DeviceAddress& address : devices[device]->gids().addresses())
      addresses.push_back({address.network, device});
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
  const Interfaces interfaces = list_interfaces();
  for (const std::shared_ptr<const Device>& device : devices_) device->gids().refresh(interfaces);
  return true;
}

}  // namespace mesh
