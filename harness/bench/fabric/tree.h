// How long a fat tree takes to come and to go, and the same of bare namespaces and links: what the kernel alone takes.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

namespace plugfest::bench {

/// Seconds, and kibibytes of kernel memory (slab and per-processor) for each host with its share of switches and links.
struct UpAndDown {
  double up_seconds = 0;
  double down_seconds = 0;  ///< until the kernel has removed the last interface
  double host_kib = 0;
};

struct TreeResult {
  int k = 0;
  int hosts = 0;
  int switches = 0;
  int links = 0;
  UpAndDown ours;            ///< addresses, routes, NICs, all links with carrier
  double reach_seconds = 0;  ///< for a datagram from each host to each other, one way for each pair
  UpAndDown floor;           ///< as many namespaces and veth pairs, all up, nothing else
  std::optional<UpAndDown> mininet;
};

/// Medians of so many rounds. Needs what netns::Fabric needs: see enter_sandbox(). Errors: std::runtime_error, also if
/// a pair of hosts does not reach each other.
TreeResult measure_tree(int k, int rounds, const std::atomic<bool>& stop);

}  // namespace plugfest::bench
