// The threads of a rank. Each executes the requests of one channel.
#pragma once

#include <string>

#include "harness/wire/channel.h"

namespace plugfest::rank {

/// Executes the requests of `channel` on the calling thread until the channel closes.
void serve_thread(Channel channel, const std::string& name);

/// Executes the requests of the control channel. Ends the process when the channel closes.
[[noreturn]] void serve_control(Channel channel);

}  // namespace plugfest::rank
