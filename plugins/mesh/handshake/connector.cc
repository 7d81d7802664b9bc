#include "plugins/mesh/handshake/connector.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

Failure connect_failure(const Path& path, std::uint16_t port, int error) {
  const std::string where = to_string(path.peer) + " port " + std::to_string(port);
  if (error == ECONNREFUSED) {
    return {Result::kRemoteError,
            "connect to " + where + " was refused: the peer closed its listener or its process died; check its log"};
  }
  return {Result::kSystemError, "cannot connect from " + to_string(path.local) + " to " + where + ": " +
                                    error_text(error) + "; check the link and that host"};
}

}  // namespace

Connector::Connector(DeviceList devices, std::vector<std::size_t> requested, Handle handle, const Transport& transport,
                     std::shared_ptr<Relay> relay)
    : paths_(std::move(devices), std::move(requested)),
      handle_(std::move(handle)),
      transport_(transport),
      relay_(std::move(relay)) {
  choose_paths();
  if (!search_) start_connect();
}

Failure Connector::no_path() const {
  std::vector<NetworkAddress> local, peer;
  for (const LocalAddress& address : local_addresses(paths_.devices())) local.push_back(address.network);
  for (const PeerAddress& address : handle_.addresses) peer.push_back(address.network);
  return {Result::kSystemError, "no NIC of this host reaches the peer: the subnets of this host are " +
                                    subnets_text(local) + ", the subnets of the peer are " + subnets_text(peer) +
                                    (relay_ ? ", and no relay of its neighbors reaches it" : "") +
                                    "; give both hosts an address on one subnet, or add a route" +
                                    (relay_ ? "" : ", or set NCCL_MESH_RELAY_SECRET on all hosts to use relays")};
}

void Connector::choose_paths() {
  repeated_ = false;
  paths_.find(handle_.addresses);
  asking_ = handle_.is_truncated() && (paths_.empty() || !paths_.current().one_subnet);
  if (asking_ && paths_.empty()) {
    // The Ask may use any interface with a route to the peer, not only a NIC.
    for (const PeerAddress& address : handle_.addresses)
      if (const std::optional<Address> source = kernel_route(address.network.address))
        paths_.add(*source, address.network.address);
  }
  if (!paths_.empty()) return;
  if (!relay_) throw no_path();
  seek_relay();
}

void Connector::seek_relay() {
  std::vector<Address> addresses;
  for (const PeerAddress& address : handle_.addresses) addresses.push_back(address.network.address);
  // This path only names the peer in messages.
  paths_.add(kRelayed, addresses.front());
  asking_ = false;
  stage_ = Stage::kSeekingRelay;
  search_.emplace(relay_, std::move(addresses), handle_.port);
}

// Starts a TCP connection on the current path, or on the first path after it on which it can be started.
void Connector::start_connect() {
  while (true) {
    try {
      const Path& path = paths_.current();
      if (!asking_) paths_.devices()[path.device]->gids().index_of(path.local);  // throws if the GID has disappeared
      link_ = PeerLink();
      comm_.reset();
      stage_ = Stage::kConnecting;
      socket_ = begin_connect(path.local, path.peer, handle_.port);
      return;
    } catch (const Failure& failure) {
      if (next_path()) {
        MESH_INFO("%s; trying the next path", failure.what());
      } else if (paths_.refresh()) {
        MESH_INFO("%s; trying the addresses that the NICs have now", failure.what());
        paths_.find(handle_.addresses);
        if (paths_.empty()) throw;
      } else {
        throw;
      }
    }
  }
}

// Makes the next path the current one. Returns false if there is none.
bool Connector::next_path() {
  repeated_ = false;
  return paths_.next();
}

void Connector::try_next_path(const Failure& why) {
  if (!next_path()) throw why;
  MESH_INFO("%s; trying the next path", why.what());
  start_connect();
}

std::unique_ptr<SendComm> Connector::step() {
  if (stage_ == Stage::kSeekingRelay) {
    if (search_->step()) return nullptr;
    socket_ = search_->take();
    if (!socket_) throw no_path();
    send_hello();
  }
  if (stage_ == Stage::kConnecting) {
    const std::optional<int> error = connect_result(socket_);
    if (!error) return nullptr;
    if (*error != 0) {
      const Failure failure = connect_failure(paths_.current(), handle_.port, *error);
      // If the search for the peer's MAC address began while the link was down, its failure also ends connects that
      // began later.
      if (*error == EHOSTUNREACH && !std::exchange(repeated_, true)) {
        MESH_INFO("%s; trying this path once more", failure.what());
        start_connect();
      } else {
        try_next_path(failure);
      }
      return nullptr;
    }
    try {
      send_hello();
    } catch (const Failure& failure) {
      try_next_path(failure);
      return nullptr;
    }
  }
  while (const std::optional<Message> message = link_.receive()) {
    std::unique_ptr<SendComm> comm = handle_answer(*message);
    if (comm || stage_ != Stage::kAwaitingAnswer) return comm;
  }
  if (link_.ended()) {
    throw Failure(Result::kRemoteError, "the peer at " + to_string(paths_.current().peer) +
                                            " disconnected during the handshake (" + link_.end_reason() +
                                            "): it closed its listener or its process died; check its log");
  }
  return nullptr;
}

void Connector::send_hello() {
  link_ = PeerLink(std::move(socket_));
  stage_ = Stage::kAwaitingAnswer;
  nonce_ = make_nonce();
  const ListenerId listener = handle_.secret.listener_id();
  if (asking_) {
    link_.send(with_proof(Ask{.listener = listener, .nonce = nonce_}, handle_.secret, nonce_));
    return;
  }
  Hello hello = {
      .listener = listener, .nonce = nonce_, .lanes = {}, .eager_bytes = transport_.eager_bytes, .proof = {}};
  std::vector<LaneStart> starts;
  if (search_) {
    starts.push_back({paths_.devices()[paths_.current().device], kRelayed});
    hello.lanes.push_back({.endpoint = {}, .peer = kRelayed});
  }
  for (int i = 0; i < transport_.queue_pairs && !search_; ++i) {
    for (const Path& path : paths_.parallel(static_cast<std::size_t>(transport_.links))) {
      if (starts.size() == kMaxLanes) break;
      starts.push_back({paths_.devices()[path.device], path.local});
      hello.lanes.push_back({.endpoint = {}, .peer = path.peer});
    }
  }
  comm_ = std::make_unique<SendComm>(starts);
  const std::vector<Endpoint> endpoints = comm_->endpoints();
  for (std::size_t i = 0; i < endpoints.size(); ++i) hello.lanes[i].endpoint = endpoints[i];
  link_.send(with_proof(hello, handle_.secret, nonce_));
}

// The message if it has this type, else null. Errors: Failure if the peer does not know the listener's secret.
template <typename Proven>
const Proven* Connector::proven(const Message& message) const {
  const auto* answer = std::get_if<Proven>(&message);
  if (answer != nullptr && !is_proven(*answer, handle_.secret, nonce_)) {
    throw Failure(Result::kRemoteError, "the process at " + to_string(paths_.current().peer) + " port " +
                                            std::to_string(handle_.port) + " is not the listener that made the handle");
  }
  return answer;
}

std::unique_ptr<SendComm> Connector::handle_answer(const Message& message) {
  if (const auto* welcome = proven<Welcome>(message); welcome != nullptr && comm_) {
    comm_->start(welcome->endpoints, transport_);
    comm_->use_bounce(welcome->bounce, transport_.eager_bytes);
    link_.send(Ready{});
    comm_->monitor(std::move(link_), {handle_.secret, nonce_, false});
    const Path& path = paths_.current();
    if (search_) {
      MESH_INFO("connected to %s through at most %d relays", to_string(path.peer).c_str(), search_->hops());
      return std::move(comm_);
    }
    const int mtu = paths_.devices()[path.device]->mtu(), peer_mtu = welcome->endpoints.front().mtu;
    const NetPlan& plan = transport_.plan;
    MESH_INFO("connected to %s through %s (%s), path MTU %d%s", to_string(path.peer).c_str(),
              paths_.devices()[path.device]->name().c_str(), path.one_subnet ? "same subnet" : "routed",
              mtu_bytes(std::min(mtu, peer_mtu)),
              plan.flows < 1 ? ""
                             : (", one of " + std::to_string(plan.flows) + " connections to each of up to " +
                                std::to_string(plan.peers) + " peers")
                                   .c_str());
    if (mtu != peer_mtu) {
      MESH_INFO("%s has path MTU %d and the NIC of %s has %d: give both interfaces one MTU",
                paths_.devices()[path.device]->name().c_str(), mtu_bytes(mtu), to_string(path.peer).c_str(),
                mtu_bytes(peer_mtu));
    }
    return std::move(comm_);
  }
  if (const auto* list = proven<Addresses>(message); list != nullptr && asking_ && !list->addresses.empty()) {
    handle_.addresses = list->addresses;
    handle_.address_count = list->addresses.size();
    choose_paths();
    if (!search_) start_connect();
    return nullptr;
  }
  const std::string peer = "the peer at " + to_string(paths_.current().peer);
  if (const auto* refused = std::get_if<Refused>(&message)) {
    throw Failure(Result::kRemoteError, refused->reason == Refusal::kNoResources
                                            ? peer + " could not set up its queue pair; check its log"
                                            : peer + " does not know this handle: its listener was closed");
  }
  throw Failure(Result::kRemoteError, peer + " sent an unexpected handshake message: use the same plugin on all ranks");
}

std::unique_ptr<Connector> Attempts::take(std::uint64_t number, const Secret& secret) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end() || found->second.connector->secret() != secret) return nullptr;
  std::unique_ptr<Connector> connector = std::move(found->second.connector);
  entries_.erase(found);
  return connector;
}

std::uint64_t Attempts::make_number() {
  // Random, so that a number copied from another process names no attempt of this process.
  const Nonce bytes = make_nonce();
  std::uint64_t number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number | 1;
}

void Attempts::put(std::uint64_t number, const void* context, std::unique_ptr<Connector> connector) {
  const std::lock_guard lock(mutex_);
  entries_[number] = {context, std::move(connector)};
}

void Attempts::drop(const void* context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.context == context; });
}

void Attempts::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace mesh
