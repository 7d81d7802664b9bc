#include "plugins/mesh/relay/tunnel_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::size_t kMaxTunnels = 256;
constexpr std::size_t kPipeBytes = std::size_t{128} << 10;
constexpr std::int64_t kOpeningMs = 10000;
// A connection that has sent no request for this time may lose its place to a new one.
constexpr std::int64_t kSilentMs = 1000;

Socket tunnel_socket() {
  const std::uint8_t any[4] = {};
  return *listen_on(from_ipv4(any), 0);
}

}  // namespace

TunnelServer::TunnelServer(const std::vector<LocalAddress>& addresses, const Secret& key, NeighborFinder& finder)
    : addresses_(addresses), key_(key), finder_(finder), socket_(tunnel_socket()), port_(port_of(socket_)) {}

bool TunnelServer::add_waits(std::vector<pollfd>& waits) const {
  // A connection that cannot be accepted would keep the socket readable.
  if (!without_descriptors_) waits.push_back({socket_.fd(), POLLIN, 0});
  bool opening = without_descriptors_;
  const auto wait_for = [&](const Socket& socket, bool reads, bool writes) {
    const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0);
    if (events != 0) waits.push_back({socket.fd(), static_cast<short>(events), 0});
  };
  for (const Tunnel& tunnel : open_) {
    if (tunnel.open) {
      const auto& [there, back] = std::pair<const Pipe&, const Pipe&>(tunnel.there, tunnel.back);
      const auto has_room = [](const Pipe& pipe) { return !pipe.at_end && pipe.first == pipe.end; };
      wait_for(tunnel.in, has_room(there), back.first < back.end);
      wait_for(tunnel.out, has_room(back), there.first < there.end);
      continue;
    }
    opening = true;
    if (!tunnel.request) wait_for(tunnel.in, true, false);
    if (tunnel.out) wait_for(tunnel.out, false, true);
    if (tunnel.opener && tunnel.opener->fd() >= 0)
      waits.push_back({tunnel.opener->fd(), static_cast<short>(tunnel.opener->wants_to_write() ? POLLOUT : POLLIN), 0});
  }
  return opening;
}

void TunnelServer::serve() {
  take_tunnels();
  open_.remove_if([this](Tunnel& tunnel) { return !advance(tunnel); });
  open_count_ = open_.size();
}

void TunnelServer::take_tunnels() {
  for (without_descriptors_ = false;;) {
    Socket accepted(accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) {
      // Otherwise no connection is pending, or it was closed already.
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      if (drop_silent()) continue;
      without_descriptors_ = true;
      return;
    }
    const Address local = local_address(accepted);
    const bool on_nic = std::any_of(addresses_.begin(), addresses_.end(),
                                    [&](const LocalAddress& address) { return address.network.address == local; });
    if (!on_nic || (open_.size() >= kMaxTunnels && !drop_silent())) {
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

// Closes the oldest connection without a request, so that another one gets its place. Returns false if that one is new,
// or if there is none.
bool TunnelServer::drop_silent() {
  const auto silent =
      std::find_if(open_.begin(), open_.end(), [](const Tunnel& tunnel) { return !tunnel.open && !tunnel.request; });
  if (silent == open_.end() || coarse_now_ms() - silent->since_ms < kSilentMs) return false;
  open_.erase(silent);
  ++counters_.refused;
  return true;
}

// Returns false when the tunnel has ended.
bool TunnelServer::advance(Tunnel& tunnel) {
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

bool TunnelServer::take_request(Tunnel& tunnel) {
  const MessageReader::Result result = tunnel.reader.read(tunnel.in);
  if (result == MessageReader::Result::kIncomplete) return true;
  if (result == MessageReader::Result::kComplete)
    tunnel.request = decode_request(tunnel.reader.bytes(), key_, tunnel.nonce);
  if (!tunnel.request) {
    ++counters_.refused;
    return false;
  }
  std::vector<PeerAddress> target;
  for (const Address& address : tunnel.request->addresses) target.push_back({{address, 0}, true});
  tunnel.paths = find_paths(addresses_, {0}, target, [](const Address&) { return std::nullopt; });
  connect_next(tunnel);
  if (tunnel.out) return true;
  finder_.ask();  // the next request may use the answers
  if (!tunnel.paths.empty() || tunnel.request->hops < 2) return reply(tunnel, TunnelStatus::kNoPath);
  std::vector<Neighbor> onward = finder_.neighbors();
  std::erase_if(onward, [&](const Neighbor& neighbor) { return neighbor.local == tunnel.local; });
  Request request = *tunnel.request;
  --request.hops;
  tunnel.opener.emplace(key_, std::move(request), std::move(onward));
  return true;
}

// Connects to the target from the path at `tunnel.path` on. `tunnel.out` stays closed if no path is left.
void TunnelServer::connect_next(Tunnel& tunnel) {
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

// Returns whether the tunnel continues.
bool TunnelServer::reply(Tunnel& tunnel, TunnelStatus status) {
  const bool sent = send_all(tunnel.in, encode(status, key_, tunnel.nonce));
  tunnel.open = sent && status == TunnelStatus::kOpen;
  if (tunnel.open) {
    detect_lost_peer(tunnel.in);
    detect_lost_peer(tunnel.out);
    tunnel.there.buffer.resize(kPipeBytes);
    tunnel.back.buffer.resize(kPipeBytes);
  }
  ++(tunnel.open ? counters_.tunnels : counters_.refused);
  return tunnel.open;
}

// Copies what can be copied without waiting. Returns false if a connection failed.
bool TunnelServer::copy(const Socket& from, const Socket& to, Pipe& pipe) {
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
  counters_.bytes += copied;
  return works;
}

}  // namespace mesh
