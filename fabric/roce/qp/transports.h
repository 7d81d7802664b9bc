// The transports that queue pairs may have.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/receive_half.h"
#include "fabric/roce/qp/send_half.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Errors: std::system_error with EOPNOTSUPP for a type that is not offered.
Transport transport_of(ibv_qp_type type);

/// The halves of a queue pair for the connection's transport. Errors: std::bad_alloc.
std::unique_ptr<SendHalf> make_sender(Connection& connection, const QueuePairSettings& settings);
std::unique_ptr<ReceiveHalf> make_receiver(Connection& connection, CompletionQueue& completions,
                                           ReceiveQueue& receives);

}  // namespace plugfest::roce
