#include "plugins/mesh/relay/neighbors.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::int64_t kNeighborMs = 30000;
constexpr std::uint8_t kGroup[4] = {239, 192, 77, 83};

void set(const Socket& socket, int level, int name, const void* value, socklen_t size, const char* what) {
  if (setsockopt(socket.fd(), level, name, value, size) != 0)
    throw system_failure(std::string(what) + " for the relay");
}

Socket udp_socket(std::uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw system_failure("create a UDP socket for the relay");
  const int yes = 1;
  if (port != 0) set(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes, "share a UDP port");
  const std::uint8_t any[4] = {};
  const SocketAddress local(from_ipv4(any), port);
  if (bind(socket.fd(), local.get(), local.size) != 0)
    throw system_failure("receive relay queries on UDP port " + std::to_string(port) + " (NCCL_MESH_RELAY_PORT)");
  return socket;
}

in_addr ipv4_of(const Address& address) {
  in_addr result;
  std::copy_n(address.bytes.begin() + 12, 4, reinterpret_cast<std::uint8_t*>(&result));
  return result;
}

// A number that processes of one host share: a host is a network namespace of a machine.
std::uint64_t number_of_this_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space = {};
  stat("/proc/self/ns/net", &space);
  return std::hash<std::string>()(boot + " " + std::to_string(space.st_ino));
}

// The NIC address of this host that shares a subnet with `address`; nullptr if none does.
const LocalAddress* on_link(const std::vector<LocalAddress>& addresses, const Address& address) {
  const NetworkAddress other = {address, 0};
  for (const LocalAddress& candidate : addresses)
    if (on_one_subnet(candidate.network, other)) return &candidate;
  return nullptr;
}

}  // namespace

NeighborFinder::NeighborFinder(const std::vector<LocalAddress>& addresses, const Secret& key, std::uint16_t port)
    : addresses_(addresses),
      key_(key),
      nonce_(make_nonce()),
      host_(number_of_this_host()),
      port_(port),
      queries_(udp_socket(port)),
      answers_(udp_socket(0)) {
  const std::uint8_t no = 0, hops = 1;
  set(answers_, IPPROTO_IP, IP_MULTICAST_LOOP, &no, sizeof no, "set multicast options");
  set(answers_, IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof hops, "set multicast options");
  for (const LocalAddress& address : addresses_) {
    if (!address.network.address.is_ipv4()) continue;
    ip_mreqn member = {};
    member.imr_multiaddr = ipv4_of(from_ipv4(kGroup));
    member.imr_address = ipv4_of(address.network.address);
    // EADDRINUSE means that the socket has already joined the group on this interface, which has several addresses.
    if (setsockopt(queries_.fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member) != 0 && errno != EADDRINUSE) {
      MESH_INFO("relay: no queries arrive on %s: %s", to_string(address.network.address).c_str(),
                error_text(errno).c_str());
    }
  }
}

void NeighborFinder::ask() {
  const std::vector<std::uint8_t> query = encode(Query{nonce_}, key_);
  const SocketAddress group(from_ipv4(kGroup), port_);
  const std::lock_guard lock(mutex_);  // the interface is a setting of the socket
  for (const LocalAddress& address : addresses_) {
    if (!address.network.address.is_ipv4()) continue;
    const in_addr local = ipv4_of(address.network.address);
    if (setsockopt(answers_.fd(), IPPROTO_IP, IP_MULTICAST_IF, &local, sizeof local) != 0) continue;
    // A lost query is repeated by the search.
    sendto(answers_.fd(), query.data(), query.size(), MSG_DONTWAIT, group.get(), group.size);
  }
}

std::vector<Neighbor> NeighborFinder::neighbors() const {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = coarse_now_ms();
  std::vector<Neighbor> all;
  for (const auto& [place, known] : known_)
    if (now - known.answered_ms < kNeighborMs) all.push_back(known.neighbor);
  std::stable_sort(all.begin(), all.end(), [](const Neighbor& a, const Neighbor& b) { return a.host < b.host; });
  return all;
}

void NeighborFinder::serve(std::uint16_t tunnel_port) {
  answer_queries(tunnel_port);
  take_answers();
}

void NeighborFinder::answer_queries(std::uint16_t tunnel_port) {
  for (;;) {
    std::array<std::uint8_t, 128> bytes;
    SocketAddress from;
    from.size = sizeof from.storage;
    const ssize_t count = recvfrom(queries_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT, from.get(), &from.size);
    if (count < 0) return;
    const std::optional<Query> query = decode_query(std::span(bytes).first(static_cast<std::size_t>(count)), key_);
    const std::optional<Address> source = from_sockaddr(from.get());
    if (!query || !source || on_link(addresses_, *source) == nullptr) continue;
    const std::vector<std::uint8_t> answer =
        encode(Answer{.nonce = query->nonce, .host = host_, .port = tunnel_port}, key_);
    sendto(queries_.fd(), answer.data(), answer.size(), MSG_DONTWAIT, from.get(), from.size);
  }
}

void NeighborFinder::take_answers() {
  for (;;) {
    std::array<std::uint8_t, 128> bytes;
    SocketAddress from;
    from.size = sizeof from.storage;
    const ssize_t count = recvfrom(answers_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT, from.get(), &from.size);
    if (count < 0) return;
    const std::optional<Answer> answer =
        decode_answer(std::span(bytes).first(static_cast<std::size_t>(count)), key_, nonce_);
    const std::optional<Address> source = from_sockaddr(from.get());
    if (!answer || !source || answer->host == host_) continue;
    const LocalAddress* local = on_link(addresses_, *source);
    if (local == nullptr) continue;
    const std::lock_guard lock(mutex_);
    if (known_.size() > 4096) known_.clear();
    known_[{*source, answer->port}] = {
        {.local = local->network.address, .address = *source, .port = answer->port, .host = answer->host},
        coarse_now_ms()};
  }
}

}  // namespace mesh
