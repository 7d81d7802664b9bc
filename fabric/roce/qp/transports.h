// The transports that queue pairs may have.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/responder.h"
#include "fabric/roce/qp/requester.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Errors: std::system_error with EOPNOTSUPP for a type that is not offered.
Transport transport_of(ibv_qp_type type);

/// The halves of a queue pair for the connection's transport. Errors: std::bad_alloc.
std::unique_ptr<Requester> make_requester(Connection& connection, const QueuePairSettings& settings);
std::unique_ptr<Responder> make_responder(Connection& connection, CompletionQueue& completions,
                                           ReceiveQueue& receives);

}  // namespace plugfest::roce
