// The commands that librdmacm writes to /dev/infiniband/rdma_cm.
#pragma once

#include <cstddef>
#include <span>

#include "fabric/rdma_cm/channel.h"

namespace plugfest::rdma_cm {

/// Executes one command, a rdma_ucm_cmd_hdr and its structure, which contains addresses of this process, for example of
/// the response. Source: rdma/rdma_user_cm.h, ABI version 4. Waits only in RDMA_USER_CM_CMD_GET_EVENT, until the
/// channel has an event, unless its descriptor has O_NONBLOCK; that wait is a cancellation point.
///
/// Addresses of the family AF_IB are refused, so librdmacm uses the commands with IP addresses only. Multicast is not
/// implemented. Thread safety: any thread. Errors: std::system_error with the errno value of the kernel.
void execute(Channel& channel, std::span<const std::byte> command);

}  // namespace plugfest::rdma_cm
