// Shows where the time of NCCL's operations went, from the transfers of all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/trace/transfers.h"

namespace plugfest::trace {

/// The messages from one rank to another.
struct Link {
  std::string from, to;  ///< "rank 1 on b"
  std::size_t messages = 0;
  std::uint64_t bytes = 0;            ///< of the largest message
  std::uint64_t retransmissions = 0;  ///< packets of all its messages, if the packets were captured
  double median_ns = 0;  ///< from the time when both sides have posted a message until both have completed it
};

/// The links of all communicators, the slowest first. Compares only messages of at least half the largest size, since
/// small ones are faster on each link.
std::vector<Link> links_of(const Transfers& transfers);

/// Tables of the operations by rank and of the links, and lines that name the slowest link and the rank that begins
/// last. Operations of the same kind and size share a table.
std::string explain(const Transfers& transfers);

}  // namespace plugfest::trace
