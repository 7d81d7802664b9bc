// Executes requests of the controller.
//
// One function `execute` for each request of PLUGFEST_REQUESTS. It runs on the thread that received the request,
// returns the answer, and throws for failures of the harness's part; only Load throws plugin::LoadError. Definitions:
// memory_calls.cc, process_calls.cc, plugin_calls.cc, attempt.cc, transfer_calls.cc, and workloads/.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "harness/wire/protocol.h"

namespace plugfest::rank {

#define PLUGFEST_EXECUTE(request, answer, thread) answer execute(const request&);
PLUGFEST_REQUESTS(PLUGFEST_EXECUTE)
#undef PLUGFEST_EXECUTE

/// Makes `Exit` possible. To be called before a plugin is loaded.
void prepare_exit();

/// Decodes a request, executes it and encodes the answer. Errors: those of `execute`; WireError for an unknown
/// operation and for bytes that are not its request.
std::vector<std::byte> execute(Operation operation, std::span<const std::byte> body);

}  // namespace plugfest::rank
