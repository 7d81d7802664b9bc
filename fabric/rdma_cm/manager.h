// The connection manager: the kernel's part of rdma_cm, in this process.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>

#include "fabric/rdma_cm/acceptor.h"
#include "fabric/rdma_cm/identifier.h"
#include "fabric/rdma_cm/poller.h"

namespace plugfest::rdma_cm {

/// Keeps all identifiers of the process and connects them to identifiers of others. The functions do what the commands
/// of the kernel's drivers/infiniband/core/ucma.c do, and post events in the same order.
///
/// Thread safety: `lock` must be held during all calls. Errors: std::system_error with the errno value of the kernel;
/// EINVAL for an unknown handle, or if the state does not allow the call.
class Manager {
 public:
  /// The manager of this process, which exists until the process ends: other threads may still make calls then.
  static Manager& instance();
  /// In a child after fork(), which has no threads: the next call of instance() returns a new manager.
  static void start_again_in_child();
  /// `devices` and the manager must live until the process ends.
  explicit Manager(const Devices& devices)
      : devices_(devices),
        poller_(lock_),
        acceptor_(poller_, [this](auto&&... request) { return requested(request...); }) {}

  std::mutex& lock() { return lock_; }

  std::uint32_t create(Channel& channel, std::uint64_t uid, std::uint16_t port_space, std::uint8_t qp_type);
  /// Returns the number of events that the program has to acknowledge.
  std::uint32_t destroy(std::uint32_t handle);
  /// Destroys all identifiers of a channel that is closed.
  void close(Channel& channel);
  /// Moves an identifier and its events. Returns the number of its events that the old channel has reported.
  std::uint32_t migrate(std::uint32_t handle, Channel& channel);

  /// `local`: a wildcard address stands for all addresses of its family; port 0 for a free one.
  void bind(std::uint32_t handle, const Endpoint& local, int interface);
  void resolve_address(std::uint32_t handle, const std::optional<Endpoint>& source, const Endpoint& destination,
                       int interface);
  void resolve_route(std::uint32_t handle);
  const Identifier& find(std::uint32_t handle) { return get(handle); }
  /// `change`: sets options of the route.
  void set_option(std::uint32_t handle, const std::function<void(Route&)>& change) { change(get(handle).route); }

  void listen(std::uint32_t handle, int backlog);
  void connect(std::uint32_t handle, const rdma_ucm_conn_param& parameters);
  /// On the passive side: accepts the request, and calls the identifier `uid`. On the active side: says that the queue
  /// pair is ready; the parameters are ignored.
  void accept(std::uint32_t handle, std::uint64_t uid, const rdma_ucm_conn_param& parameters);
  void reject(std::uint32_t handle, std::uint8_t reason, std::span<const std::uint8_t> private_data);
  void disconnect(std::uint32_t handle);
  /// Completes the handshake early: the program has received data before the peer's last message of the handshake.
  void establish(std::uint32_t handle);

  /// Announces the address of a multicast group; the program attaches its queue pair. Returns the handle of the
  /// membership. `uid`: the program's name for it. Also fails with EINVAL if `group` is not a multicast address.
  std::uint32_t join(std::uint32_t handle, std::uint64_t uid, const Address& group);
  /// Returns the number of events of the membership that the program has to acknowledge.
  std::uint32_t leave(std::uint32_t membership);

  /// Takes the next event of a channel, which is not empty.
  rdma_ucm_event_resp take_event(Channel& channel);

 private:
  Identifier& get(std::uint32_t handle);
  void post(const Identifier& identifier, EventType type, int status = 0, const Message* message = nullptr);
  std::vector<Address> bound_addresses(const Address& local) const;
  /// An address of this host of the same family.
  std::optional<Address> first_address_like(const Address& other) const;
  void post_rejection(const Identifier& identifier, const Message& message);
  void bind_ports(Identifier& identifier);
  void send_request(Identifier& identifier);
  Stream::Callbacks callbacks(std::uint32_t handle);
  bool requested(const Port& port, const Message& request, Descriptor& connection);
  void received(Identifier& identifier, const Message& message);
  bool retry_later(Identifier& identifier);
  void ended(Identifier& identifier, int error);
  void stop_waiting(Identifier& identifier);
  std::uint32_t& events_reported_to(std::uint32_t owner);

  const Devices& devices_;
  std::mutex lock_;
  Poller poller_;
  Acceptor acceptor_;
  std::map<std::uint32_t, Identifier> identifiers_;
  std::uint32_t last_handle_ = 0;
};

}  // namespace plugfest::rdma_cm
