// Measures how long fat trees take to build and remove.
#pragma once

#include <atomic>

#include "harness/wire/fields.h"

namespace plugfest::bench {

/// Times, and kernel memory (slab and per-processor) per host with its share of switches and links.
struct UpAndDown {
  double up_seconds = 0;
  double down_seconds = 0;  ///< until the kernel has removed the last interface
  double host_kib = 0;
  PLUGFEST_FIELDS(up_seconds, down_seconds, host_kib)
};

struct TreeResult {
  int k = 0;
  int hosts = 0;
  int switches = 0;
  int links = 0;
  UpAndDown ours;            ///< addresses, routes, NICs, all links with carrier
  double reach_seconds = 0;  ///< duration of one datagram per pair of hosts
  UpAndDown floor;           ///< only namespaces and veth pairs, with all interfaces up
  PLUGFEST_FIELDS(k, hosts, switches, links, key("plugfest", ours), reach_seconds, key("bare", floor))
};

/// Measures how long it takes to build and remove a fat tree, compared with bare namespaces and links. Returns the
/// medians of `rounds`. Requires a sandbox: see netns::enter_sandbox(). Errors: std::runtime_error, including if
/// a datagram between two hosts does not arrive.
TreeResult measure_tree(int k, int rounds, const std::atomic<bool>& stop);

}  // namespace plugfest::bench
