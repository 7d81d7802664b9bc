// Draws the messages of NCCL's operations as ladders.
#pragma once

#include <string>

#include "harness/trace/transfers.h"

namespace plugfest::trace {

/// An HTML page without scripts: the text of explain(), and a ladder of the slowest call of each kind of operation. A
/// ladder has a line for each rank, on which time runs downwards, and an arrow for each of the first 400 messages, from
/// the time when the sender's plugin has accepted it until the receiver has its data.
std::string ladder_page(const Transfers& transfers);

}  // namespace plugfest::trace
