// Makes messages from the parameters of calls, and events from messages. Thread safety: any thread.
#pragma once

#include <rdma/rdma_user_cm.h>

#include "fabric/rdma_cm/channel.h"
#include "fabric/rdma_cm/identifier.h"
#include "fabric/rdma_cm/message.h"

namespace plugfest::rdma_cm {

/// A message of `identifier` with the parameters of rdma_connect() or rdma_accept(). Errors: EINVAL for too many bytes
/// of private data.
Message message_of(MessageType type, const Identifier& identifier, const rdma_ucm_conn_param& parameters);

Message rejection(const Identifier& identifier, RejectReason reason);

/// An event of `identifier`, with the parameters of `message` unless that is null. The owner and uid are still 0.
/// Source: cma_set_req_event_data() and cma_set_rep_event_data() in the kernel's drivers/infiniband/core/cma.c.
Event event_of(const Identifier& identifier, EventType type, const Message* message);

}  // namespace plugfest::rdma_cm
