#include "plugins/mesh/handshake/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr int kPortTries = 32;
// With kDropSilentFrom or more unfinished handshakes, silent connections are closed after kSilentMs. With kMaxIncoming,
// no connection is accepted until others are finished.
constexpr std::size_t kDropSilentFrom = 64;
constexpr std::size_t kMaxIncoming = 1024;
constexpr std::int64_t kSilentMs = 10000;
// Ids in the epoll set: listening sockets below this one, connections from it on.
constexpr std::uint64_t kFirstConnection = 1u << 16;

Failure no_address() { return {Result::kSystemError, "listen: the NICs have lost all their addresses"}; }

}  // namespace

Acceptor::Acceptor(DeviceList devices) : devices_(std::move(devices)), next_id_(kFirstConnection) {
  open_port();
  events_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  if (!events_) throw system_failure("create an epoll descriptor");
  for (std::size_t i = 0; i < listening_.size(); ++i) watch(listening_[i].socket.fd(), i);
}

Acceptor::~Acceptor() {
  const Dropped& all = dropped_;
  if (all.unknown + all.forged + all.repeated + all.malformed + all.silent == 0) return;
  MESH_INFO(
      "port %d dropped connections: %zu to unknown listeners, %zu forged, %zu repeated, %zu malformed, %zu silent",
      port_, all.unknown, all.forged, all.repeated, all.malformed, all.silent);
}

// The port is the same on all addresses, since the handle holds one port.
void Acceptor::open_port() {
  for (int i = 0; i < kPortTries; ++i)
    if (listen_on_all_addresses()) return;
  throw Failure(Result::kSystemError, "cannot find a TCP port that is free on all addresses of the NICs");
}

// Returns false if the port that the first address got is taken on another address.
bool Acceptor::listen_on_all_addresses() {
  listening_.clear();
  port_ = 0;
  std::optional<Failure> failure;
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    for (const DeviceAddress& candidate : devices_[device]->gids().addresses()) {
      try {
        std::optional<Socket> socket = listen_on(candidate.network.address, port_);
        if (!socket) return false;
        if (port_ == 0) port_ = port_of(*socket);
        listening_.push_back({candidate.network, device, *std::move(socket)});
      } catch (const Failure& why) {
        failure = why;
      }
    }
  }
  if (listening_.empty()) throw failure.value_or(no_address());
  // An address may have been removed since the NICs were found. The other addresses are enough.
  if (failure) MESH_INFO("%s", failure->what());
  return true;
}

// Closes the sockets of addresses that the NICs have lost, and listens on their new addresses.
void Acceptor::follow_addresses() {
  const Interfaces interfaces = list_interfaces();
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    devices_[device]->gids().refresh(interfaces);
    const std::vector<DeviceAddress> now = devices_[device]->gids().addresses();
    for (ListeningSocket& listening : listening_) {
      const bool kept = std::any_of(now.begin(), now.end(),
                                    [&](const DeviceAddress& address) { return address.network == listening.network; });
      if (listening.device == device && !kept) listening.socket = Socket();
    }
    for (const DeviceAddress& address : now) {
      const bool known = std::any_of(listening_.begin(), listening_.end(), [&](const ListeningSocket& own) {
        return own.device == device && own.socket && own.network == address.network;
      });
      if (known) continue;
      try {
        std::optional<Socket> socket = listen_on(address.network.address, port_);
        if (!socket)
          throw Failure(Result::kSystemError,
                        "port " + std::to_string(port_) + " is in use on " + to_string(address.network.address));
        // The place of a closed socket is used again, so that the ids stay below kFirstConnection.
        auto place = std::find_if(listening_.begin(), listening_.end(),
                                  [](const ListeningSocket& listening) { return !listening.socket; });
        if (place == listening_.end()) {
          if (listening_.size() >= kFirstConnection)
            throw Failure(Result::kSystemError, "cannot listen on more than 65536 addresses");
          place = listening_.emplace(place);
        }
        watch(socket->fd(), static_cast<std::uint64_t>(place - listening_.begin()));
        *place = {address.network, device, *std::move(socket)};
      } catch (const Failure& failure) {
        MESH_INFO("%s", failure.what());
      }
    }
  }
}

void Acceptor::watch(int fd, std::uint64_t id) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (epoll_ctl(events_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) throw system_failure("add a socket to the epoll set");
}

Listener& Acceptor::add(std::vector<std::size_t> devices, const Transport& transport) {
  follow_addresses();
  if (std::none_of(listening_.begin(), listening_.end(),
                   [](const ListeningSocket& listening) { return bool(listening.socket); }))
    throw no_address();
  auto listener = std::make_unique<Listener>();
  listener->secret = Secret::make();
  listener->id = listener->secret.listener_id();
  listener->devices = std::move(devices);
  listener->transport = transport;
  Listener& added = *listener;
  listeners_.emplace(added.id, std::move(listener));
  return added;
}

Handle Acceptor::handle_of(const Listener& listener) const {
  Handle handle;
  handle.port = port_;
  handle.secret = listener.secret;
  handle.addresses = addresses_for(listener);
  handle.address_count = handle.addresses.size();
  return handle;
}

std::vector<PeerAddress> Acceptor::addresses_for(const Listener& listener) const {
  std::vector<PeerAddress> addresses;
  for (const ListeningSocket& listening : listening_) {
    const std::vector<std::size_t>& own = listener.devices;
    const bool of_listener = std::find(own.begin(), own.end(), listening.device) != own.end();
    if (listening.socket) addresses.push_back({listening.network, of_listener});
  }
  return addresses;
}

void Acceptor::refuse(Listener& listener) {
  listener.refuses = true;
  std::erase_if(incoming_, [&](const auto& entry) { return entry.second.listener == &listener; });
  for (Listener::Outcome& outcome : listener.outcomes)
    if (outcome.comm) outcome.comm->close();
  listener.outcomes.clear();
}

void Acceptor::remove(Listener& listener) {
  refuse(listener);
  listeners_.erase(listeners_.find(listener.id));
}

bool Acceptor::has(const void* listener) const {
  return std::any_of(listeners_.begin(), listeners_.end(),
                     [&](const auto& entry) { return entry.second.get() == listener; });
}

// The listener that a Hello or Ask is for, or null if its sender does not know the secret or repeats a message.
template <typename Proven>
Listener* Acceptor::listener_for(const Proven& message) {
  const auto found = listeners_.find(message.listener);
  if (found == listeners_.end() || found->second->refuses) {
    ++dropped_.unknown;
    return nullptr;
  }
  Listener& listener = *found->second;
  if (!is_proven(message, listener.secret, message.nonce)) {
    ++dropped_.forged;
    MESH_INFO("a connection to port %d was refused: its proof is wrong", port_);
    return nullptr;
  }
  if (!listener.used_nonces.insert(message.nonce).second) {
    ++dropped_.repeated;
    MESH_INFO("a connection to port %d was refused: it repeats an earlier message", port_);
    return nullptr;
  }
  return &listener;
}

std::unique_ptr<RecvComm> Acceptor::accept(Listener& listener) {
  if (listener.outcomes.empty()) progress();
  if (listener.outcomes.empty()) return nullptr;
  Listener::Outcome outcome = std::move(listener.outcomes.front());
  listener.outcomes.pop_front();
  if (outcome.failure) throw *outcome.failure;
  return std::move(outcome.comm);
}

void Acceptor::progress() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(events_.fd(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
    if (id < kFirstConnection)
      take_connections(listening_[id].socket);
    else if (const auto found = incoming_.find(id); found != incoming_.end() && !advance(found->second))
      incoming_.erase(found);
  }
}

void Acceptor::take_connections(const Socket& socket) {
  constexpr int kAtOnce = 64;
  for (int i = 0; i < kAtOnce; ++i) {
    if (incoming_.size() >= kDropSilentFrom) drop_silent();
    if (incoming_.size() >= kMaxIncoming) return;
    Socket accepted(accept4(socket.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) {
      if (errno != EMFILE && errno != ENFILE) return;  // no connection is pending, or it was closed already
      const Failure failure = system_failure("accept a connection (raise `ulimit -n`)");
      // Closes a silent connection, so that its descriptor serves another one.
      const auto silent = std::find_if(incoming_.begin(), incoming_.end(),
                                       [](const auto& entry) { return entry.second.listener == nullptr; });
      if (silent == incoming_.end()) throw failure;
      incoming_.erase(silent);
      ++dropped_.silent;
      continue;
    }
    const std::uint64_t id = next_id_++;
    try {
      watch(accepted.fd(), id);
    } catch (const Failure& failure) {
      // The peer notices that its connection is closed. The listener serves the other ones.
      MESH_INFO("a connection to port %d was closed: %s", port_, failure.what());
      continue;
    }
    Incoming& incoming = incoming_[id];
    incoming.link = PeerLink(std::move(accepted));
    incoming.since_ms = coarse_now_ms();
    // In most cases the peer's Hello has arrived already.
    if (!advance(incoming)) incoming_.erase(id);
  }
}

void Acceptor::drop_silent() {
  const std::int64_t now = coarse_now_ms();
  dropped_.silent += std::erase_if(incoming_, [&](const auto& entry) {
    return entry.second.listener == nullptr && now - entry.second.since_ms > kSilentMs;
  });
}

// Returns false when the handshake is finished or has failed.
bool Acceptor::advance(Incoming& incoming) {
  try {
    while (const std::optional<Message> message = incoming.link.receive())
      if (!handle_message(incoming, *message)) return false;
    if (!incoming.link.ended()) return true;
    if (incoming.listener == nullptr) ++dropped_.silent;
    return false;
  } catch (const Failure& failure) {
    ++dropped_.malformed;
    MESH_INFO("a connection to port %d was closed: %s", port_, failure.what());
    return false;
  }
}

bool Acceptor::handle_message(Incoming& incoming, const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message)) return handle_hello(incoming, *hello);
  if (const auto* ask = std::get_if<Ask>(&message)) {
    const Listener* listener = listener_for(*ask);
    if (listener == nullptr) {
      incoming.link.send(Refused{Refusal::kUnknownListener});
      return false;
    }
    return incoming.link.send(with_proof(Addresses{addresses_for(*listener)}, listener->secret, ask->nonce));
  }
  if (std::holds_alternative<Ready>(message) && incoming.comm) {
    // The comm keeps the socket open, so it must be removed from the epoll set.
    epoll_ctl(events_.fd(), EPOLL_CTL_DEL, incoming.link.socket().fd(), nullptr);
    incoming.comm->monitor(std::move(incoming.link), {incoming.listener->secret, incoming.nonce, true});
    incoming.listener->outcomes.push_back({std::move(incoming.comm), std::nullopt});
  }
  return false;
}

bool Acceptor::handle_hello(Incoming& incoming, const Hello& hello) {
  Listener* listener = incoming.listener == nullptr ? listener_for(hello) : nullptr;
  if (listener == nullptr) {
    incoming.link.send(Refused{Refusal::kUnknownListener});
    return false;
  }
  incoming.listener = listener;
  incoming.nonce = hello.nonce;
  try {
    std::vector<LaneStart> starts;
    std::vector<Endpoint> remotes;
    for (const LaneOffer& lane : hello.lanes) {
      remotes.push_back(lane.endpoint);
      if (lane.peer == kRelayed && hello.lanes.size() == 1) {
        starts.push_back({devices_[listener->devices.front()], kRelayed});
        continue;
      }
      const auto listening = std::find_if(listening_.begin(), listening_.end(),
                                          [&](const ListeningSocket& own) { return own.network.address == lane.peer; });
      if (listening == listening_.end()) {
        throw Failure(Result::kRemoteError,
                      "the peer chose the path to " + to_string(lane.peer) +
                          ", which is not the address of a NIC: use the same plugin on all ranks");
      }
      starts.push_back({devices_[listening->device], lane.peer});
    }
    incoming.comm = std::make_unique<RecvComm>(starts, std::min(hello.eager_bytes, listener->transport.eager_bytes));
    incoming.comm->start(remotes, listener->transport);
    return incoming.link.send(
        with_proof(Welcome{incoming.comm->endpoints(), incoming.comm->bounce(), {}}, listener->secret, hello.nonce));
  } catch (const Failure& failure) {
    incoming.link.send(Refused{Refusal::kNoResources});
    listener->outcomes.push_back({nullptr, failure});
    return false;
  }
}

Listener& Listeners::add(DeviceList devices, std::vector<std::size_t> nics, const Transport& transport,
                         Handle& handle) {
  const std::lock_guard lock(mutex_);
  if (!acceptor_) acceptor_ = std::make_unique<Acceptor>(std::move(devices));
  Listener& listener = acceptor_->add(std::move(nics), transport);
  handle = acceptor_->handle_of(listener);
  return listener;
}

std::vector<std::size_t> Listeners::nics_of(void* listener) {
  const std::lock_guard lock(mutex_);
  return find(listener, "connect").devices;
}

std::unique_ptr<RecvComm> Listeners::accept(void* listener) {
  const std::lock_guard lock(mutex_);
  return acceptor_->accept(find(listener, "accept"));
}

void Listeners::refuse(void* listener) {
  const std::lock_guard lock(mutex_);
  Listener& refusing = find(listener, "connect");
  acceptor_->refuse(refusing);
  acceptor_->accept(refusing);  // answers the Hellos that have arrived
}

void Listeners::remove(void* listener) {
  const std::lock_guard lock(mutex_);
  acceptor_->remove(find(listener, "closeListen"));
  if (acceptor_->empty()) acceptor_.reset();
}

Listener& Listeners::find(void* listener, const char* function) {
  if (!acceptor_ || !acceptor_->has(listener))
    throw Failure(Result::kInvalidArgument,
                  std::string(function) + ": listenComm was not returned by listen, or is closed");
  return *static_cast<Listener*>(listener);
}

void Listeners::clear() {
  const std::lock_guard lock(mutex_);
  acceptor_.reset();
}

}  // namespace mesh
