#include "fabric/rdma_cm/events.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/rdma_cm/error.h"

namespace plugfest::rdma_cm {
namespace {

// Does what cma_set_req_event_data() and cma_set_rep_event_data() do in the kernel: each side sees the values that it
// may use itself.
void fill(rdma_ucm_conn_param& out, const Message& message) {
  out.qp_num = message.qp_number;
  out.responder_resources = message.initiator_depth;
  out.initiator_depth = message.responder_resources;
  out.flow_control = message.flow_control;
  out.retry_count = message.retry_count;
  out.rnr_retry_count = message.rnr_retry_count;
  out.srq = message.srq;
  // Programs see the whole field of the packet.
  out.private_data_len = static_cast<std::uint8_t>(max_private_bytes(message.type, is_datagram(message.port_space)));
  std::memcpy(out.private_data, message.private_data.data(), out.private_data_len);
}

void fill(rdma_ucm_ud_param& out, const Message& message, const Identifier& identifier) {
  out.qp_num = message.qp_number;
  out.qkey = message.qkey;
  out.ah_attr = address_vector(identifier, identifier.route.remote.address);
  out.private_data_len = static_cast<std::uint8_t>(max_private_bytes(message.type, is_datagram(message.port_space)));
  std::memcpy(out.private_data, message.private_data.data(), out.private_data_len);
}

}  // namespace

Message message_of(MessageType type, const Identifier& identifier, const rdma_ucm_conn_param& parameters) {
  if (parameters.private_data_len > max_private_bytes(type, identifier.is_datagram())) fail(EINVAL);
  Message message = {.type = type,
                     .qp_type = identifier.qp_type,
                     .port_space = identifier.port_space,
                     .source_port = identifier.route.local.port,
                     .qp_number = parameters.qp_num & 0xff'ffff,
                     .qkey = parameters.qkey != 0 ? parameters.qkey : kDatagramQkey,
                     .psn = identifier.connection.own.psn,
                     .mtu = identifier.route.device->mtu,
                     .responder_resources = parameters.responder_resources,
                     .initiator_depth = parameters.initiator_depth,
                     .flow_control = parameters.flow_control,
                     .retry_count = std::min<std::uint8_t>(parameters.retry_count, 7),
                     .rnr_retry_count = std::min<std::uint8_t>(parameters.rnr_retry_count, 7),
                     .srq = parameters.srq,
                     .private_size = parameters.private_data_len};
  std::memcpy(message.private_data.data(), parameters.private_data, parameters.private_data_len);
  return message;
}

Event event_of(const Identifier& identifier, EventType type, const Message* message) {
  Event event;
  event.response.id = identifier.handle;
  event.response.event = static_cast<std::uint32_t>(type);
  if (message != nullptr && identifier.is_datagram())
    fill(event.response.param.ud, *message, identifier);
  else if (message != nullptr)
    fill(event.response.param.conn, *message);
  return event;
}

Message rejection(const Identifier& identifier, RejectReason reason) {
  return {.type = MessageType::kReject, .port_space = identifier.port_space, .reason = reason};
}

}  // namespace plugfest::rdma_cm
