#include "fabric/rdma_cm/manager.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "fabric/rdma_cm/error.h"
#include "fabric/rdma_cm/events.h"
#include "fabric/system/number.h"

namespace plugfest::rdma_cm {
namespace {

constexpr int kMaxBacklog = 1024;
// A request is repeated if nobody listens on its port, or if the process that accepted the connection for its host has
// just ended. perftest and qperf connect to a port at the moment at which their server listens on it: hardware, whose
// requests take milliseconds, hides that.
constexpr int kMaxAttempts = 10;
constexpr std::chrono::milliseconds kRetryDelay(20);
// The ports that are chosen for identifiers without one, as Linux does by default.
constexpr std::uint16_t kFirstFreePort = 32768, kLastFreePort = 60999;

// Whether an address stands for all addresses of its family. The kernel's cma_any_addr() also counts loopback
// addresses; here only the usual ones, since the hosts of a loopback fabric have others.
bool is_wildcard(const Address& address) {
  return address == Address() || address == Address(in_addr{INADDR_ANY}) || address == Address(in6addr_loopback) ||
         address == Address(in_addr{htonl(INADDR_LOOPBACK)});
}

// The manager of the process.
std::atomic<Manager*> current;

std::uint16_t random_port() {
  return static_cast<std::uint16_t>(kFirstFreePort + random_number() % (kLastFreePort - kFirstFreePort + 1));
}

}  // namespace

Manager& Manager::instance() {
  Manager* manager = current.load();
  if (manager == nullptr) {
    auto* const made = new Manager(program_devices());
    // If two threads make one, the second one is never used.
    manager = current.compare_exchange_strong(manager, made) ? made : current.load();
  }
  return *manager;
}

void Manager::start_again_in_child() { current = nullptr; }

Identifier& Manager::get(std::uint32_t handle) {
  const auto found = identifiers_.find(handle);
  if (found == identifiers_.end()) fail(EINVAL);
  return found->second;
}

std::uint32_t Manager::create(Channel& channel, std::uint64_t uid, std::uint16_t port_space, std::uint8_t qp_type) {
  Identifier& identifier = identifiers_[++last_handle_];
  identifier.handle = last_handle_;
  identifier.uid = uid;
  identifier.channel = &channel;
  identifier.port_space = port_space;
  identifier.qp_type = qp_type;
  identifier.connection.own.psn = random_number() & 0xff'ffff;
  return last_handle_;
}

std::uint32_t Manager::destroy(std::uint32_t handle) {
  Identifier& identifier = get(handle);
  if (identifier.state == State::kRequested && identifier.connection.stream)
    identifier.connection.stream->send(rejection(identifier, RejectReason::kConsumerDefined));
  stop_waiting(identifier);
  const std::deque<Event> removed = identifier.channel->remove_events_of(handle);
  for (const auto& [membership, unused] : identifier.memberships) identifier.channel->remove_events_of(membership);
  for (const std::unique_ptr<BoundPort>& port : identifier.listening.ports) poller_.remove(port->socket());
  const std::uint32_t reported = identifier.events_reported;
  identifiers_.erase(handle);
  // The requests that the program has not seen belong to the listener.
  for (const Event& event : removed)
    if (static_cast<EventType>(event.response.event) == EventType::kConnectRequest) destroy(event.response.id);
  return reported;
}

void Manager::close(Channel& channel) {
  channel.close();
  std::vector<std::uint32_t> handles;
  for (const auto& [handle, identifier] : identifiers_)
    if (identifier.channel == &channel) handles.push_back(handle);
  for (const std::uint32_t handle : handles)
    if (identifiers_.contains(handle)) destroy(handle);  // a listener destroys its requests
}

std::uint32_t Manager::migrate(std::uint32_t handle, Channel& channel) {
  Identifier& identifier = get(handle);
  const auto move_events_of = [&](std::uint32_t owner) {
    for (const Event& event : identifier.channel->remove_events_of(owner)) {
      channel.push(event);
      // A request follows its listener, as in ucma_migrate_id(), until the program has seen it.
      if (static_cast<EventType>(event.response.event) == EventType::kConnectRequest)
        get(event.response.id).channel = &channel;
    }
  };
  move_events_of(handle);
  for (const auto& [membership, unused] : identifier.memberships) move_events_of(membership);
  identifier.channel = &channel;
  return identifier.events_reported;
}

// The local addresses that an identifier is bound to.
std::vector<Address> Manager::bound_addresses(const Address& local) const {
  if (!is_wildcard(local)) return {local};
  std::vector<Address> addresses = devices_.addresses();
  if (local.is_ipv4()) std::erase_if(addresses, [](const Address& address) { return !address.is_ipv4(); });
  return addresses;
}

void Manager::bind_ports(Identifier& identifier) {
  const auto bind = [&](std::uint16_t port) {
    std::vector<std::unique_ptr<BoundPort>> ports;
    for (const Address& address : bound_addresses(identifier.route.local.address))
      ports.push_back(std::make_unique<BoundPort>(
          Port{.space = identifier.port_space, .endpoint = {.address = address, .port = port}}));
    identifier.listening.ports = std::move(ports);
    identifier.route.local.port = port;
  };
  if (identifier.route.local.port != 0) return bind(identifier.route.local.port);
  for (int attempt = 1;; ++attempt) {
    try {
      return bind(random_port());
    } catch (const std::system_error& error) {
      if (attempt == 1000 || error.code().value() != EADDRINUSE) throw;
    }
  }
}

void Manager::bind(std::uint32_t handle, const Endpoint& local, int interface) {
  Identifier& identifier = get(handle);
  if (identifier.state != State::kIdle) fail(EINVAL);
  if (!is_wildcard(local.address)) {
    identifier.route.device = devices_.with(local.address);
    if (!identifier.route.device) fail(ENODEV);
  }
  identifier.route.local = local;
  identifier.route.interface = interface;
  bind_ports(identifier);
  identifier.state = State::kBound;
}

void Manager::resolve_address(std::uint32_t handle, const std::optional<Endpoint>& source, const Endpoint& destination,
                              int interface) {
  Identifier& identifier = get(handle);
  if (identifier.state != State::kIdle && identifier.state != State::kBound) fail(EINVAL);
  Route& route = identifier.route;
  if (identifier.state == State::kIdle && source) route.local = *source;
  if (interface != 0) route.interface = interface;
  route.remote = destination;
  int error = 0;
  if (is_wildcard(destination.address)) {  // this host itself
    const std::vector<Address> own = bound_addresses(destination.address);
    if (!own.empty()) route.local.address = route.remote.address = own.front();
  }
  if (is_wildcard(route.local.address)) {
    std::optional<Address> found = source_for(route.remote.address, route.interface);
    // Hosts have no route to multicast groups unless a user adds one. Such a group is reached through the first device.
    if (!found && route.remote.address.is_multicast()) found = first_address_like(route.remote.address);
    if (found)
      route.local.address = *found;
    else
      error = errno;
  }
  if (error == 0) route.device = devices_.with(route.local.address);
  if (error == 0 && !route.device) error = ENODEV;
  if (error != 0) {
    post(identifier, EventType::kAddressError, -error);
    return;
  }
  if (route.local.port == 0) route.local.port = random_port();
  identifier.state = State::kAddressResolved;
  post(identifier, EventType::kAddressResolved);
}

std::optional<Address> Manager::first_address_like(const Address& other) const {
  for (const Address& address : devices_.addresses())
    if (address.is_ipv4() == other.is_ipv4()) return address;
  return std::nullopt;
}

void Manager::resolve_route(std::uint32_t handle) {
  Identifier& identifier = get(handle);
  if (identifier.state != State::kAddressResolved) fail(EINVAL);
  identifier.state = State::kRouteResolved;
  post(identifier, EventType::kRouteResolved);
}

void Manager::listen(std::uint32_t handle, int backlog) {
  Identifier& identifier = get(handle);
  if (identifier.state == State::kIdle) {
    bind_ports(identifier);
    identifier.state = State::kBound;
  }
  if (identifier.state != State::kBound) fail(EINVAL);
  try {
    for (const std::unique_ptr<BoundPort>& port : identifier.listening.ports) {
      acceptor_.listen(port->port().endpoint.address);
      acceptor_.listen(*port);
    }
  } catch (...) {  // the program may try again
    for (const std::unique_ptr<BoundPort>& port : identifier.listening.ports) poller_.remove(port->socket());
    throw;
  }
  identifier.listening.backlog = backlog > 0 ? std::min(backlog, kMaxBacklog) : kMaxBacklog;
  identifier.state = State::kListening;
}

void Manager::connect(std::uint32_t handle, const rdma_ucm_conn_param& parameters) {
  Identifier& identifier = get(handle);
  if (identifier.state != State::kRouteResolved) fail(EINVAL);
  identifier.connection.own = message_of(MessageType::kRequest, identifier, parameters);
  identifier.connection.own.destination_port = identifier.route.remote.port;
  identifier.state = State::kConnecting;
  send_request(identifier);
}

void Manager::send_request(Identifier& identifier) {
  const Route& route = identifier.route;
  ++identifier.connection.attempts;
  identifier.connection.stream = Stream::connect_to(poller_, route.local.address, route.remote.address, route.interface,
                                                    callbacks(identifier.handle));
  if (!identifier.connection.stream) ended(identifier, errno);
}

Stream::Callbacks Manager::callbacks(std::uint32_t handle) {
  return {.connected =
              [this, handle] {
                Connection& connection = get(handle).connection;
                if (!connection.stream->send(connection.own)) ended(get(handle), ECONNRESET);
              },
          .received = [this, handle](const Message& message) { received(get(handle), message); },
          .ended = [this, handle](int error) { ended(get(handle), error); }};
}

bool Manager::requested(const Port& port, const Message& request, Descriptor& connection) {
  const auto found = std::find_if(identifiers_.begin(), identifiers_.end(), [&](const auto& entry) {
    const auto& ports = entry.second.listening.ports;
    return entry.second.state == State::kListening && std::any_of(ports.begin(), ports.end(), [&](const auto& bound) {
             return bound->port().space == port.space && bound->port().endpoint.port == port.endpoint.port &&
                    bound->port().endpoint.address == port.endpoint.address;
           });
  });
  if (found == identifiers_.end()) return false;
  Identifier& listener = found->second;
  if (request.qp_type != listener.qp_type) return false;
  const std::optional<LocalDevice> device = devices_.with(port.endpoint.address);
  if (listener.listening.waiting == listener.listening.backlog || !device) {
    rdma_cm::reject(connection.get(), request, RejectReason::kNoResources);
    return true;
  }
  Identifier& identifier = get(create(*listener.channel, 0, listener.port_space, request.qp_type));
  identifier.state = State::kRequested;
  identifier.connection.listener = listener.handle;
  ++listener.listening.waiting;
  identifier.connection.peer = request;
  // The program moves its queue pair before it accepts.
  identifier.connection.own.responder_resources = request.initiator_depth;
  identifier.connection.own.initiator_depth = request.responder_resources;
  try {
    identifier.connection.stream =
        std::make_unique<Stream>(poller_, std::move(connection), callbacks(identifier.handle));
    identifier.route.local = port.endpoint;
    identifier.route.remote = {.address = identifier.connection.stream->peer(), .port = request.source_port};
    identifier.route.device = device;
    Event event = event_of(identifier, EventType::kConnectRequest, &request);
    event.owner = listener.handle;
    event.response.uid = listener.uid;
    listener.channel->push(event);
  } catch (...) {
    destroy(identifier.handle);  // which ends the wait and rejects the request
    throw;
  }
  return true;
}

void Manager::accept(std::uint32_t handle, std::uint64_t uid, const rdma_ucm_conn_param& parameters) {
  Identifier& identifier = get(handle);
  Connection& connection = identifier.connection;
  if (identifier.state == State::kResponded) {
    connection.stream->send({.type = MessageType::kReady, .port_space = identifier.port_space});
    identifier.state = State::kEstablished;
    return;
  }
  if (identifier.state != State::kRequested) fail(EINVAL);
  identifier.uid = uid;
  connection.own = message_of(MessageType::kReply, identifier, parameters);
  // If the peer has ended, the program gets the event that it gets when the last message of the handshake does not
  // arrive.
  const bool sent = connection.stream && connection.stream->send(connection.own);
  stop_waiting(identifier);
  identifier.state = identifier.is_datagram() ? State::kClosed : State::kAccepting;
  if (identifier.is_datagram())
    connection.stream.reset();
  else if (!sent)
    ended(identifier, ETIMEDOUT);
}

void Manager::reject(std::uint32_t handle, std::uint8_t reason, std::span<const std::uint8_t> private_data) {
  Identifier& identifier = get(handle);
  const bool responds = identifier.state == State::kResponded;
  if (!responds && identifier.state != State::kRequested) fail(EINVAL);
  Message message = rejection(identifier, reason != 0 ? RejectReason{reason} : RejectReason::kConsumerDefined);
  if (private_data.size() > max_private_bytes(message.type, identifier.is_datagram())) fail(EINVAL);
  message.private_size = static_cast<std::uint8_t>(private_data.size());
  std::copy(private_data.begin(), private_data.end(), message.private_data.begin());
  if (identifier.connection.stream) identifier.connection.stream->send(message);
  identifier.connection.stream.reset();
  stop_waiting(identifier);
  identifier.state = State::kClosed;
}

void Manager::disconnect(std::uint32_t handle) {
  Identifier& identifier = get(handle);
  if (identifier.state == State::kClosed || identifier.state == State::kDisconnecting) return;
  if (identifier.state < State::kResponded || !identifier.connection.stream) fail(EINVAL);
  identifier.connection.stream->finish();
  identifier.state = State::kDisconnecting;
}

void Manager::establish(std::uint32_t handle) {
  Identifier& identifier = get(handle);
  if (identifier.state != State::kAccepting) return;
  identifier.state = State::kEstablished;
  post(identifier, EventType::kEstablished);
}

rdma_ucm_event_resp Manager::take_event(Channel& channel) {
  const Event event = channel.pop();
  ++events_reported_to(event.owner);
  return event.response;
}

void Manager::post(const Identifier& identifier, EventType type, int status, const Message* message) {
  if (identifier.uid == 0) return;  // the program has no name for it yet
  Event event = event_of(identifier, type, message);
  event.owner = identifier.handle;
  event.response.uid = identifier.uid;
  event.response.status = static_cast<std::uint32_t>(status);
  identifier.channel->push(event);
}

void Manager::post_rejection(const Identifier& identifier, const Message& message) {
  post(identifier, identifier.is_datagram() ? EventType::kUnreachable : EventType::kRejected,
       static_cast<int>(message.reason), &message);
}

void Manager::received(Identifier& identifier, const Message& message) {
  Connection& connection = identifier.connection;
  if (message.type == MessageType::kReply && identifier.state == State::kConnecting) {
    connection.peer = message;
    identifier.state = identifier.is_datagram() ? State::kClosed : State::kResponded;
    post(identifier, identifier.is_datagram() ? EventType::kEstablished : EventType::kConnectResponse, 0, &message);
    if (identifier.is_datagram()) connection.stream.reset();
  } else if (message.type == MessageType::kReady) {
    establish(identifier.handle);
  } else if (message.type == MessageType::kReject && identifier.state == State::kConnecting &&
             message.reason == RejectReason::kInvalidServiceId) {
    ended(identifier, ECONNREFUSED);
  } else if (message.type == MessageType::kReject &&
             (identifier.state == State::kConnecting || identifier.state == State::kAccepting)) {
    connection.stream.reset();
    identifier.state = State::kClosed;
    post_rejection(identifier, message);
  }
}

// Returns false if there is no memory or descriptor for it.
bool Manager::retry_later(Identifier& identifier) {
  try {
    identifier.connection.retry = std::make_unique<Timer>(poller_, [this, handle = identifier.handle] {
      get(handle).connection.retry.reset();
      try {
        send_request(get(handle));
      } catch (const std::exception&) {
        ended(get(handle), ENOMEM);
      }
    });
  } catch (const std::exception&) {
    return false;
  }
  identifier.connection.retry->start(kRetryDelay);
  return true;
}

void Manager::ended(Identifier& identifier, int error) {
  Connection& connection = identifier.connection;
  const State state = identifier.state;
  connection.stream.reset();
  const bool again = error == 0 || error == ECONNRESET || error == ECONNREFUSED;
  if (state == State::kConnecting && again && connection.attempts < kMaxAttempts && retry_later(identifier)) return;
  if (state == State::kRequested) return;  // accept() reports it
  identifier.state = State::kClosed;
  if (state == State::kConnecting && error == ECONNREFUSED)
    post_rejection(identifier, rejection(identifier, RejectReason::kInvalidServiceId));
  else if (state == State::kConnecting || state == State::kAccepting)
    post(identifier, EventType::kUnreachable, -(error != 0 ? error : ETIMEDOUT));
  else if (state >= State::kResponded && state <= State::kDisconnecting)
    post(identifier, EventType::kDisconnected);
}

void Manager::stop_waiting(Identifier& identifier) {
  if (identifier.state != State::kRequested) return;
  const auto listener = identifiers_.find(identifier.connection.listener);
  if (listener != identifiers_.end()) --listener->second.listening.waiting;
}

}  // namespace plugfest::rdma_cm
