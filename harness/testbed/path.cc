#include "harness/testbed/path.h"

#include <set>

namespace plugfest::testbed {

std::vector<RankPath> disjoint_paths(const topology::Graph& graph) {
  std::vector<RankPath> paths;
  std::set<topology::HostInterface> used;
  for (const topology::Path& path : graph.paths()) {
    if (used.count(path.from) != 0 || used.count(path.to) != 0) continue;
    used.insert({path.from, path.to});
    paths.push_back({graph.interface_name(path.from), graph.interface_name(path.to)});
  }
  return paths;
}

}  // namespace plugfest::testbed
