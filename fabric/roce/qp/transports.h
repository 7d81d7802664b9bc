// Creates requester and responder for the transport of a queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/requester.h"
#include "fabric/roce/qp/responder.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Errors: std::system_error with EOPNOTSUPP for an unsupported type.
Transport transport_of(ibv_qp_type type);

/// Requester and responder for the connection's transport. Errors: std::bad_alloc.
std::unique_ptr<Requester> make_requester(Connection& connection, const QueuePairSettings& settings);
std::unique_ptr<Responder> make_responder(Connection& connection, CompletionQueue& completions, ReceiveQueue& receives);

}  // namespace plugfest::roce
