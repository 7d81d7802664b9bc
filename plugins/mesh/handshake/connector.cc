// The connecting side of the handshake.
#include "plugins/mesh/handshake/connector.h"

#include <cstring>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

std::vector<LocalAddress> addresses_here(const DeviceList& devices) {
  std::vector<LocalAddress> here;
  for (std::size_t device = 0; device < devices.size(); ++device) {
    for (const DeviceAddress& each : devices[device]->addresses()) here.push_back({each.network, device});
  }
  return here;
}

Failure cannot_dial(const Path& path, std::uint16_t port, int error) {
  const std::string where = to_string(path.peer) + " port " + std::to_string(port);
  if (error == ECONNREFUSED) {
    return {Result::kRemoteError,
            "nothing listens at " + where + ": the peer closed its listener or its process died; look at its log"};
  }
  return {Result::kSystemError, "cannot connect from " + to_string(path.local) + " to " + where + ": " +
                                    error_text(error) + "; look at the link and at that host"};
}

}  // namespace

Connector::Connector(DeviceList devices, std::size_t asked_device, Handle handle, const Transport& transport)
    : devices_(std::move(devices)), asked_device_(asked_device), handle_(std::move(handle)), transport_(transport) {
  plan();
  dial();
}

Failure Connector::no_path() const {
  std::vector<NetworkAddress> here, there;
  for (const LocalAddress& each : addresses_here(devices_)) here.push_back(each.network);
  for (const PeerAddress& each : handle_.addresses) there.push_back(each.network);
  return {Result::kSystemError, "no NIC here reaches the peer: subnets here are " + subnets_text(here) +
                                    ", those of the peer are " + subnets_text(there) +
                                    "; give both hosts an address on one subnet, or add a route"};
}

void Connector::plan() {
  paths_ = find_paths(addresses_here(devices_), asked_device_, handle_.addresses, kernel_route);
  path_ = 0;
  asking_ = handle_.cut_short() && (paths_.empty() || !paths_.front().one_subnet);
  if (asking_ && paths_.empty()) {
    // Asking needs no NIC: any interface that a route leaves by will do.
    for (const PeerAddress& each : handle_.addresses) {
      if (const std::optional<Address> source = kernel_route(each.network.address)) {
        paths_.push_back({.local = *source, .peer = each.network.address});
      }
    }
  }
  if (paths_.empty()) throw no_path();
}

// Begins with the path at `path_`, or the first after it that can be begun.
void Connector::dial() {
  while (true) {
    try {
      const Path& path = paths_[path_];
      link_ = PeerLink();
      comm_.reset();
      stage_ = Stage::kDialing;
      socket_ = begin_connect(path.local, path.peer, handle_.port);
      return;
    } catch (const Failure& failure) {
      if (path_ + 1 == paths_.size()) throw;
      MESH_INFO("%s; trying the next path", failure.what());
      ++path_;
    }
  }
}

void Connector::try_next(const Failure& why) {
  if (path_ + 1 == paths_.size()) throw why;
  MESH_INFO("%s; trying the next path", why.what());
  ++path_;
  dial();
}

std::unique_ptr<SendComm> Connector::step() {
  if (stage_ == Stage::kDialing) {
    const std::optional<int> error = connect_result(socket_);
    if (!error) return nullptr;
    if (*error != 0) {
      try_next(cannot_dial(paths_[path_], handle_.port, *error));
      return nullptr;
    }
    greet();
  }
  while (const std::optional<Message> message = link_.receive()) {
    std::unique_ptr<SendComm> comm = answered(*message);
    if (comm || stage_ == Stage::kDialing) return comm;
  }
  if (link_.ended()) {
    throw Failure(Result::kRemoteError, "the peer at " + to_string(paths_[path_].peer) + " hung up (" +
                                            link_.end_reason() +
                                            "): it closed its listener or its process died; look at its log");
  }
  return nullptr;
}

void Connector::greet() {
  const Path& path = paths_[path_];
  link_ = PeerLink(std::move(socket_));
  stage_ = Stage::kAwaitingAnswer;
  if (asking_) {
    link_.send(Ask{handle_.nonce});
    return;
  }
  comm_ = std::make_unique<SendComm>(devices_[path.device], path.local);
  link_.send(Hello{handle_.nonce, comm_->endpoint()});
}

std::unique_ptr<SendComm> Connector::answered(const Message& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message); welcome != nullptr && comm_) {
    comm_->start(welcome->endpoint, transport_);
    link_.send(Ready{});
    comm_->watch(std::move(link_));
    const Path& path = paths_[path_];
    MESH_INFO("connected to %s by %s (%s)", to_string(path.peer).c_str(), devices_[path.device]->name().c_str(),
              path.one_subnet ? "one subnet" : "a route");
    return std::move(comm_);
  }
  if (const auto* list = std::get_if<Addresses>(&message); list != nullptr && asking_ && !list->addresses.empty()) {
    handle_.addresses = list->addresses;
    handle_.address_count = list->addresses.size();
    plan();
    dial();
    return nullptr;
  }
  const std::string peer = "the peer at " + to_string(paths_[path_].peer);
  if (const auto* refused = std::get_if<Refused>(&message)) {
    throw Failure(Result::kRemoteError, refused->reason == Refusal::kNoResources
                                            ? peer + " could not set up its end of the connection; look at its log"
                                            : peer + " does not know this handle: its listener was closed");
  }
  throw Failure(Result::kRemoteError,
                peer + " answered with a message that has no place here: use one plugin on all ranks");
}

std::unique_ptr<Connector> Attempts::take(std::uint64_t number, const Nonce& nonce) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end() || found->second.connector->nonce() != nonce) return nullptr;
  std::unique_ptr<Connector> connector = std::move(found->second.connector);
  entries_.erase(found);
  return connector;
}

std::uint64_t Attempts::make_number() {
  // Random, so that bytes that were copied from another process do not name an attempt here.
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
  std::erase_if(entries_, [&](const auto& each) { return each.second.context == context; });
}

void Attempts::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace mesh
