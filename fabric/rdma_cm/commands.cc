#include "fabric/rdma_cm/commands.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>

#include "fabric/rdma_cm/error.h"
#include "fabric/rdma_cm/manager.h"

namespace plugfest::rdma_cm {
namespace {

// A command. It may be shorter than its newest structure: fields that an older librdmacm does not send are 0.
class Command {
 public:
  explicit Command(std::span<const std::byte> bytes) {
    if (bytes.size() < sizeof(header_)) fail(EINVAL);
    std::memcpy(&header_, bytes.data(), sizeof(header_));
    body_ = bytes.subspan(sizeof(header_));
    if (header_.in > body_.size()) fail(EINVAL);
    body_ = body_.first(header_.in);
  }

  std::uint32_t number() const { return header_.cmd; }

  template <typename Structure>
  Structure as() const {
    Structure structure = {};
    std::memcpy(&structure, body_.data(), std::min(sizeof(structure), body_.size()));
    return structure;
  }

  // Writes `response` to the address that the command names, as far as there is room.
  template <typename Response>
  void respond(std::uint64_t address, const Response& response) const {
    std::memcpy(reinterpret_cast<void*>(address), &response, std::min<std::size_t>(sizeof(response), header_.out));
  }

 private:
  rdma_ucm_cmd_hdr header_ = {};
  std::span<const std::byte> body_;
};

// An address of a program, which begins with a sockaddr_in or is a sockaddr_in6.
struct ProgramAddress {
  Endpoint endpoint;
  int interface = 0;
};

std::optional<ProgramAddress> address_of(const sockaddr_in6& in) {
  if (in.sin6_family == AF_UNSPEC) return std::nullopt;
  if (in.sin6_family != AF_INET && in.sin6_family != AF_INET6) fail(EINVAL);
  roce::SocketAddress address;
  std::memcpy(address.to_fill(), &in, sizeof(in));
  return ProgramAddress{.endpoint = address.endpoint(),
                        .interface = in.sin6_family == AF_INET6 ? static_cast<int>(in.sin6_scope_id) : 0};
}

template <typename Out>
void copy_address(const Endpoint& endpoint, int interface, Out& out) {
  const roce::SocketAddress address(endpoint, interface);
  std::memcpy(&out, address.get(), address.length());
}

rdma_ucm_query_route_resp route_of(const Identifier& identifier) {
  const Route& route = identifier.route;
  rdma_ucm_query_route_resp out = {};
  if (identifier.state != State::kIdle) copy_address(route.local, route.interface, out.src_addr);
  if (route.remote.port != 0) copy_address(route.remote, route.interface, out.dst_addr);
  if (!route.device) return out;
  out.node_guid = route.device->node_guid;
  out.ibdev_index = route.device->index;
  out.port_num = route.device->port;
  ib_user_path_rec& path = out.ib_route[0];
  std::copy(route.local.address.bytes.begin(), route.local.address.bytes.end(), path.sgid);
  std::copy(route.remote.address.bytes.begin(), route.remote.address.bytes.end(), path.dgid);
  path.pkey = 0xffff;
  path.mtu = route.device->mtu;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
  path.traffic_class = route.traffic_class;
  path.hop_limit = kHopLimit;
  path.reversible = path.numb_path = 1;
  out.num_paths = identifier.state >= State::kRouteResolved && identifier.state != State::kListening ? 1 : 0;
  return out;
}

void set_option(Manager& manager, const rdma_ucm_set_option& option) {
  std::uint8_t byte = 0;
  const bool is_byte = option.optname == RDMA_OPTION_ID_TOS || option.optname == RDMA_OPTION_ID_ACK_TIMEOUT;
  if (is_byte && option.optlen != sizeof(byte)) fail(EINVAL);
  if (is_byte) std::memcpy(&byte, reinterpret_cast<const void*>(option.optval), sizeof(byte));
  manager.set_option(option.id, [&](Route& route) {
    if (option.level != RDMA_OPTION_ID) fail(ENOSYS);
    switch (option.optname) {
      case RDMA_OPTION_ID_TOS:
        route.traffic_class = byte;
        break;
      case RDMA_OPTION_ID_ACK_TIMEOUT:
        route.ack_timeout = byte & 31;
        break;
      case RDMA_OPTION_ID_REUSEADDR:
      case RDMA_OPTION_ID_AFONLY:
        break;  // ports are free again at once, and addresses have one family
      default:
        fail(ENOSYS);
    }
  });
}

// Ignores the flag for programs that only send: such a program joins in the same way, and does not attach its queue
// pair.
rdma_ucm_create_id_resp join(Manager& manager, std::uint32_t handle, std::uint64_t uid, const sockaddr_in6& address) {
  const std::optional<ProgramAddress> group = address_of(address);
  if (!group) fail(EINVAL);
  return {.id = manager.join(handle, uid, group->endpoint.address)};
}

// The commands that do not wait. The lock is held.
void execute_at_once(Manager& manager, Channel& channel, const Command& command) {
  switch (command.number()) {
    case RDMA_USER_CM_CMD_CREATE_ID: {
      const auto in = command.as<rdma_ucm_create_id>();
      const rdma_ucm_create_id_resp out = {.id = manager.create(channel, in.uid, in.ps, in.qp_type)};
      return command.respond(in.response, out);
    }
    case RDMA_USER_CM_CMD_DESTROY_ID: {
      const auto in = command.as<rdma_ucm_destroy_id>();
      const rdma_ucm_destroy_id_resp out = {.events_reported = manager.destroy(in.id)};
      return command.respond(in.response, out);
    }
    case RDMA_USER_CM_CMD_BIND_IP: {
      const auto in = command.as<rdma_ucm_bind_ip>();
      const std::optional<ProgramAddress> local = address_of(in.addr);
      if (!local) fail(EINVAL);
      return manager.bind(in.id, local->endpoint, local->interface);
    }
    case RDMA_USER_CM_CMD_RESOLVE_IP: {
      const auto in = command.as<rdma_ucm_resolve_ip>();
      const std::optional<ProgramAddress> source = address_of(in.src_addr), destination = address_of(in.dst_addr);
      if (!destination) fail(EINVAL);
      return manager.resolve_address(in.id, source ? std::optional(source->endpoint) : std::nullopt,
                                     destination->endpoint, destination->interface);
    }
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return manager.resolve_route(command.as<rdma_ucm_resolve_route>().id);
    case RDMA_USER_CM_CMD_QUERY_ROUTE: {
      const auto in = command.as<rdma_ucm_query>();
      return command.respond(in.response, route_of(manager.find(in.id)));
    }
    case RDMA_USER_CM_CMD_CONNECT: {
      const auto in = command.as<rdma_ucm_connect>();
      return manager.connect(in.id, in.conn_param);
    }
    case RDMA_USER_CM_CMD_LISTEN: {
      const auto in = command.as<rdma_ucm_listen>();
      return manager.listen(in.id, static_cast<int>(in.backlog));
    }
    case RDMA_USER_CM_CMD_ACCEPT: {
      const auto in = command.as<rdma_ucm_accept>();
      return manager.accept(in.id, in.uid, in.conn_param);
    }
    case RDMA_USER_CM_CMD_REJECT: {
      const auto in = command.as<rdma_ucm_reject>();
      return manager.reject(in.id, in.reason, {in.private_data, in.private_data_len});
    }
    case RDMA_USER_CM_CMD_DISCONNECT:
      return manager.disconnect(command.as<rdma_ucm_disconnect>().id);
    case RDMA_USER_CM_CMD_INIT_QP_ATTR: {
      const auto in = command.as<rdma_ucm_init_qp_attr>();
      return command.respond(in.response, queue_pair_attributes(manager.find(in.id), in.qp_state));
    }
    case RDMA_USER_CM_CMD_SET_OPTION:
      return set_option(manager, command.as<rdma_ucm_set_option>());
    case RDMA_USER_CM_CMD_NOTIFY: {
      const auto in = command.as<rdma_ucm_notify>();
      if (in.event == IBV_EVENT_COMM_EST) manager.establish(in.id);
      return;
    }
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST: {
      const auto in = command.as<rdma_ucm_join_ip_mcast>();
      return command.respond(in.response, join(manager, in.id, in.uid, in.addr));
    }
    case RDMA_USER_CM_CMD_JOIN_MCAST: {
      const auto in = command.as<rdma_ucm_join_mcast>();
      sockaddr_in6 group = {};
      std::memcpy(&group, &in.addr, sizeof(group));
      return command.respond(in.response, join(manager, in.id, in.uid, group));
    }
    case RDMA_USER_CM_CMD_LEAVE_MCAST: {
      const auto in = command.as<rdma_ucm_destroy_id>();
      const rdma_ucm_destroy_id_resp out = {.events_reported = manager.leave(in.id)};
      return command.respond(in.response, out);
    }
    case RDMA_USER_CM_CMD_MIGRATE_ID: {
      const auto in = command.as<rdma_ucm_migrate_id>();
      const rdma_ucm_migrate_resp out = {.events_reported = manager.migrate(in.id, channel)};
      return command.respond(in.response, out);
    }
    default:
      fail(ENOSYS);
  }
}

void get_event(Manager& manager, Channel& channel, const Command& command) {
  while (true) {
    pollfd readable = {.fd = channel.descriptor(), .events = POLLIN, .revents = 0};
    {
      const std::lock_guard guard(manager.lock());
      if (channel.closed())
        readable.fd = -1;  // its number may belong to another file
      else if (!channel.empty())
        return command.respond(command.as<rdma_ucm_get_event>().response, manager.take_event(channel));
      else if ((::fcntl(channel.descriptor(), F_GETFL) & O_NONBLOCK) != 0)
        fail(EAGAIN);
    }
    if (::poll(&readable, 1, -1) < 0) throw_errno("wait for an event");
  }
}

}  // namespace

void execute(Channel& channel, std::span<const std::byte> bytes) {
  const Command command(bytes);
  Manager& manager = Manager::instance();
  if (command.number() == RDMA_USER_CM_CMD_GET_EVENT) return get_event(manager, channel, command);
  const std::lock_guard guard(manager.lock());
  if (channel.closed()) fail(EBADF);
  execute_at_once(manager, channel, command);
}

}  // namespace plugfest::rdma_cm
