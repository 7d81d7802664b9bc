// The thread of a relay, and the search for relays.
#include "plugins/mesh/relay/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/failure.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::size_t kMaxTunnels = 256;
constexpr std::size_t kPipeBytes = std::size_t{128} << 10;
constexpr std::int64_t kOpeningMs = 10000;
constexpr int kTickMs = 20;  // while a tunnel is being opened
constexpr std::int64_t kNeighbourMs = 30000;
constexpr std::int64_t kAskAgainMs = 100;
constexpr std::uint8_t kGroup[4] = {239, 192, 77, 83};

void set(const Socket& socket, int level, int name, const void* value, socklen_t size, const char* what) {
  if (setsockopt(socket.fd(), level, name, value, size) != 0) throw system_failure(std::string("relay: ") + what);
}

Socket udp_socket(std::uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw system_failure("relay: create a UDP socket");
  const int yes = 1;
  if (port != 0) set(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes, "share a UDP port");
  const std::uint8_t any[4] = {};
  const SocketAddress local(from_ipv4(any), port);
  if (bind(socket.fd(), local.get(), local.size) != 0) {
    throw system_failure("relay: receive on UDP port " + std::to_string(port) + " (NCCL_MESH_RELAY_PORT)");
  }
  return socket;
}

in_addr ipv4_of(const Address& address) {
  in_addr result;
  std::copy_n(address.bytes.begin() + 12, 4, reinterpret_cast<std::uint8_t*>(&result));
  return result;
}

/// A number that processes of one host share: a host is a network namespace of a machine.
std::uint64_t number_of_this_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space = {};
  stat("/proc/self/ns/net", &space);
  return std::hash<std::string>()(boot + " " + std::to_string(space.st_ino));
}

/// The NIC address of this host that shares a subnet with `address`; nullptr if none does.
const LocalAddress* on_link(const std::vector<LocalAddress>& addresses, const Address& address) {
  const NetworkAddress other = {address, 0};
  for (const LocalAddress& each : addresses) {
    if (on_one_subnet(each.network, other)) return &each;
  }
  return nullptr;
}

}  // namespace

Relay::Relay(std::vector<LocalAddress> addresses, const Options& options)
    : addresses_(std::move(addresses)),
      key_(relay_key(options.secret)),
      wait_ms_(std::int64_t{1000} * options.wait_s),
      nonce_(make_nonce()),
      query_port_(options.port),
      host_(number_of_this_host()) {
  open_sockets(options.port);
  // Signals are for the threads of the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ask();
}

Relay::~Relay() {
  eventfd_write(wake_.fd(), 1);
  thread_.join();
}

void Relay::open_sockets(std::uint16_t port) {
  queries_ = udp_socket(port);
  answers_ = udp_socket(0);
  const std::uint8_t any[4] = {};
  tunnels_ = *listen_on(from_ipv4(any), 0);
  tunnel_port_ = port_of(tunnels_);
  wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) throw system_failure("relay: create an event descriptor");
  const std::uint8_t no = 0, one = 1;
  set(answers_, IPPROTO_IP, IP_MULTICAST_LOOP, &no, sizeof no, "set multicast options");
  set(answers_, IPPROTO_IP, IP_MULTICAST_TTL, &one, sizeof one, "set multicast options");
  for (const LocalAddress& each : addresses_) {
    if (!each.network.address.is_ipv4()) continue;
    ip_mreqn member = {};
    member.imr_multiaddr = ipv4_of(from_ipv4(kGroup));
    member.imr_address = ipv4_of(each.network.address);
    // Two addresses of one interface join once.
    if (setsockopt(queries_.fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member) != 0 && errno != EADDRINUSE) {
      MESH_INFO("relay: no queries arrive on %s: %s", to_string(each.network.address).c_str(),
                error_text(errno).c_str());
    }
  }
}

void Relay::ask() {
  const std::vector<std::uint8_t> query = encode(Query{nonce_}, key_);
  const SocketAddress group(from_ipv4(kGroup), query_port_);
  const std::lock_guard lock(mutex_);  // the interface is a setting of the socket
  for (const LocalAddress& each : addresses_) {
    if (!each.network.address.is_ipv4()) continue;
    const in_addr local = ipv4_of(each.network.address);
    if (setsockopt(answers_.fd(), IPPROTO_IP, IP_MULTICAST_IF, &local, sizeof local) != 0) continue;
    // A lost query is repeated by the search.
    sendto(answers_.fd(), query.data(), query.size(), MSG_DONTWAIT, group.get(), group.size);
  }
}

std::vector<Neighbour> Relay::neighbours() const {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = coarse_now_ms();
  std::vector<Neighbour> all;
  for (const auto& [place, known] : known_) {
    if (now - known.answered_ms < kNeighbourMs) all.push_back(known.neighbour);
  }
  std::stable_sort(all.begin(), all.end(), [](const Neighbour& a, const Neighbour& b) { return a.host < b.host; });
  return all;
}

Relay::Counters Relay::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Relay::run() {
  std::vector<pollfd> waits;
  for (;;) {
    waits = {
        {wake_.fd(), POLLIN, 0}, {queries_.fd(), POLLIN, 0}, {answers_.fd(), POLLIN, 0}, {tunnels_.fd(), POLLIN, 0}};
    bool opening = false;
    const auto wait_for = [&](const Socket& socket, bool reads, bool writes) {
      const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0);
      if (events != 0) waits.push_back({socket.fd(), static_cast<short>(events), 0});
    };
    for (const Tunnel& each : open_) {
      if (each.open) {
        const auto& [there, back] = std::pair<const Pipe&, const Pipe&>(each.there, each.back);
        const auto has_room = [](const Pipe& pipe) { return !pipe.at_end && pipe.first == pipe.end; };
        wait_for(each.in, has_room(there), back.first < back.end);
        wait_for(each.out, has_room(back), there.first < there.end);
        continue;
      }
      opening = true;
      if (!each.request) wait_for(each.in, true, false);
      if (each.out) wait_for(each.out, false, true);
      if (each.opener && each.opener->fd() >= 0) {
        waits.push_back({each.opener->fd(), static_cast<short>(each.opener->wants_to_write() ? POLLOUT : POLLIN), 0});
      }
    }
    ::poll(waits.data(), waits.size(), opening ? kTickMs : -1);
    if (waits[0].revents != 0) return;
    try {
      answer_queries();
      take_answers();
      take_tunnels();
      open_.remove_if([this](Tunnel& each) { return !advance(each); });
      tunnel_count_ = open_.size();
    } catch (const std::exception& error) {
      MESH_INFO("relay: %s", error.what());
    }
  }
}

void Relay::answer_queries() {
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
        encode(Answer{.nonce = query->nonce, .host = host_, .port = tunnel_port_}, key_);
    sendto(queries_.fd(), answer.data(), answer.size(), MSG_DONTWAIT, from.get(), from.size);
  }
}

void Relay::take_answers() {
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

void Relay::take_tunnels() {
  for (;;) {
    Socket accepted(accept4(tunnels_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) return;
    const Address local = local_address(accepted);
    const bool on_nic = std::any_of(addresses_.begin(), addresses_.end(),
                                    [&](const LocalAddress& each) { return each.network.address == local; });
    if (!on_nic || open_.size() >= kMaxTunnels) {
      const std::lock_guard lock(mutex_);
      ++counters_.refused;
      continue;
    }
    Tunnel& tunnel = open_.emplace_back();
    tunnel.in = std::move(accepted);
    tunnel.local = local;
    tunnel.nonce = make_nonce();
    tunnel.since_ms = coarse_now_ms();
    send_all(tunnel.in, encode(Greeting{tunnel.nonce}));
  }
}

// Returns false when the tunnel has ended.
bool Relay::advance(Tunnel& tunnel) {
  if (tunnel.open) {
    if (!copy(tunnel.in, tunnel.out, tunnel.there) || !copy(tunnel.out, tunnel.in, tunnel.back)) return false;
    return !tunnel.there.finished || !tunnel.back.finished;
  }
  if (coarse_now_ms() - tunnel.since_ms > kOpeningMs) return false;
  if (!tunnel.request) return take_request(tunnel);
  if (tunnel.opener) {
    if (tunnel.opener->step()) return true;
    tunnel.out = tunnel.opener->take();
    tunnel.opener.reset();
    return reply(tunnel, tunnel.out ? TunnelStatus::kOpen : TunnelStatus::kNoPath);
  }
  const std::optional<int> error = connect_result(tunnel.out);
  if (!error) return true;
  if (*error == 0) return reply(tunnel, TunnelStatus::kOpen);
  ++tunnel.path;
  connect_next(tunnel);
  return tunnel.out || reply(tunnel, TunnelStatus::kNoPath);
}

bool Relay::take_request(Tunnel& tunnel) {
  const MessageReader::Result result = tunnel.reader.read(tunnel.in);
  if (result == MessageReader::Result::kIncomplete) return true;
  if (result == MessageReader::Result::kComplete) {
    tunnel.request = decode_request(tunnel.reader.bytes(), key_, tunnel.nonce);
  }
  if (!tunnel.request) {
    const std::lock_guard lock(mutex_);
    ++counters_.refused;
    return false;
  }
  std::vector<PeerAddress> target;
  for (const Address& each : tunnel.request->addresses) target.push_back({{each, 0}, true});
  tunnel.paths = find_paths(addresses_, {0}, target, [](const Address&) { return std::nullopt; });
  connect_next(tunnel);
  if (tunnel.out) return true;
  ask();  // for the next request
  if (!tunnel.paths.empty() || tunnel.request->hops < 2) return reply(tunnel, TunnelStatus::kNoPath);
  std::vector<Neighbour> onward = neighbours();
  std::erase_if(onward, [&](const Neighbour& each) { return each.local == tunnel.local; });
  Request request = *tunnel.request;
  --request.hops;
  tunnel.opener.emplace(key_, std::move(request), std::move(onward));
  return true;
}

// Connects to the target from the path at `tunnel.path` on. `tunnel.out` stays closed if no path is left.
void Relay::connect_next(Tunnel& tunnel) {
  tunnel.out = Socket();
  for (; tunnel.path < tunnel.paths.size() && !tunnel.out; ++tunnel.path) {
    try {
      const Path& path = tunnel.paths[tunnel.path];
      tunnel.out = begin_connect(path.local, path.peer, tunnel.request->port);
      return;
    } catch (const Failure&) {
    }
  }
}

// Returns whether the tunnel goes on.
bool Relay::reply(Tunnel& tunnel, TunnelStatus status) {
  const bool sent = send_all(tunnel.in, encode(status, key_, tunnel.nonce));
  tunnel.open = sent && status == TunnelStatus::kOpen;
  if (tunnel.open) {
    detect_lost_peer(tunnel.in);
    detect_lost_peer(tunnel.out);
    tunnel.there.buffer.resize(kPipeBytes);
    tunnel.back.buffer.resize(kPipeBytes);
  }
  const std::lock_guard lock(mutex_);
  ++(tunnel.open ? counters_.tunnels : counters_.refused);
  return tunnel.open;
}

// Copies what can be copied without waiting. Returns false if a connection failed.
bool Relay::copy(const Socket& from, const Socket& to, Pipe& pipe) {
  std::uint64_t copied = 0;
  bool works = true;
  while (works && !pipe.finished) {
    if (pipe.first == pipe.end) {
      pipe.first = pipe.end = 0;
      if (pipe.at_end) {
        shutdown(to.fd(), SHUT_WR);
        pipe.finished = true;
        break;
      }
      const ssize_t count = recv(from.fd(), pipe.buffer.data(), pipe.buffer.size(), MSG_DONTWAIT);
      if (count < 0) {
        works = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        break;
      }
      pipe.end = static_cast<std::size_t>(count);
      pipe.at_end = count == 0;
      continue;
    }
    const ssize_t count =
        send(to.fd(), pipe.buffer.data() + pipe.first, pipe.end - pipe.first, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) {
      works = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      break;
    }
    pipe.first += static_cast<std::size_t>(count);
    copied += static_cast<std::uint64_t>(count);
  }
  if (copied > 0) {
    const std::lock_guard lock(mutex_);
    counters_.bytes += copied;
  }
  return works;
}

RelaySearch::RelaySearch(std::shared_ptr<Relay> relay, std::vector<Address> addresses, std::uint16_t port)
    : relay_(std::move(relay)),
      request_{.hops = 1, .port = port, .addresses = std::move(addresses)},
      since_ms_(coarse_now_ms()) {}

bool RelaySearch::step() {
  const std::int64_t now = coarse_now_ms();
  if (!opener_) {
    const bool late = now - since_ms_ > relay_->wait_ms();
    if (now - asked_ms_ >= kAskAgainMs) {
      relay_->ask();
      asked_ms_ = now;
    }
    std::vector<Neighbour> neighbours = relay_->neighbours();
    if (late) return false;
    if (neighbours.empty() || now < not_before_ms_) return true;
    opener_.emplace(relay_->key(), request_, std::move(neighbours));
  }
  if (opener_->step()) return true;
  socket_ = opener_->take();
  opener_.reset();
  if (socket_) return false;
  if (request_.hops < kMaxHops) {
    ++request_.hops;
  } else {
    request_.hops = 1;
    not_before_ms_ = now + kAskAgainMs;
  }
  return true;
}

}  // namespace mesh
