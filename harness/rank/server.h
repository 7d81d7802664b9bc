// The threads of a rank: each serves one channel, request by request.
#pragma once

#include <string>

#include "harness/rank/protocol/channel.h"

namespace plugfest::rank {

/// Executes what comes on `channel` on the calling thread, until the channel ends.
void serve_thread(Channel channel, const std::string& name);

/// Starts threads as the controller asks for them and tells it what they do. Ends the process when the channel ends.
[[noreturn]] void serve_control(Channel channel);

}  // namespace plugfest::rank
