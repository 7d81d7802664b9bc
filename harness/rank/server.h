// Executes the requests of the controller. Each thread of a rank executes those of one channel.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "harness/rank/memory.h"
#include "harness/wire/channel.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

/// Executes the requests of `channel` on the calling thread until the channel closes.
void serve_thread(Channel channel, const std::string& name);

/// Executes the requests of the control channel. Ends the process when the channel closes.
[[noreturn]] void serve_control(Channel channel);

/// One function for each request of PLUGFEST_REQUESTS. It runs on the thread that received the request, returns the
/// answer, and throws for failures of the harness; only Load throws plugin::LoadError.
#define PLUGFEST_EXECUTE(request, answer, thread) answer execute(const request&);
PLUGFEST_REQUESTS(PLUGFEST_EXECUTE)
#undef PLUGFEST_EXECUTE

/// Makes `Exit` possible. Call it before a plugin is loaded.
void prepare_exit();

/// Decodes a request, executes it and encodes the answer. Errors: those of `execute`; WireError for an unknown
/// operation and for bytes that are not a valid request.
std::vector<std::byte> execute(Operation operation, std::span<const std::byte> body);

}  // namespace plugfest::rank
