#include "harness/bed/path.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "harness/control/process/launcher.h"

namespace plugfest::bed {

RankGroup::RankGroup(const RankPath& path) : ranks{path.near, path.far}, interfaces{{"", path.near}, {path.far, ""}} {}

std::optional<RankGroup> RankGroup::complete(std::size_t count) const {
  for (std::size_t first = 0; first + count <= ranks.size(); ++first) {
    std::vector<std::size_t> chosen;
    for (std::size_t rank = first; rank < ranks.size() && chosen.size() < count; ++rank) {
      const auto reaches = [&](std::size_t other) { return !interfaces[rank][other].empty(); };
      if (std::all_of(chosen.begin(), chosen.end(), reaches)) chosen.push_back(rank);
    }
    if (chosen.size() < count) continue;
    RankGroup group;
    for (const std::size_t rank : chosen) {
      group.ranks.push_back(ranks[rank]);
      group.interfaces.emplace_back();
      for (const std::size_t other : chosen) group.interfaces.back().push_back(interfaces[rank][other]);
    }
    return group;
  }
  return std::nullopt;
}

RankPath parse_path(const std::string& text, const topology::Graph& graph) {
  std::set<std::string> names;
  for (const topology::Path& path : graph.paths())
    names.insert({graph.interface_name(path.from), graph.interface_name(path.to)});
  const std::size_t comma = std::min(text.find(','), text.size());
  const RankPath path{text.substr(0, comma), text.substr(std::min(comma + 1, text.size()))};
  if (names.count(path.near) == 0 || names.count(path.far) == 0 ||
      control::host_of(path.near) == control::host_of(path.far)) {
    throw std::runtime_error(
        fmt::format("--path \"{}\": expected interfaces of two hosts of {}, separated by a comma: {}", text, graph.name,
                    fmt::join(names, ", ")));
  }
  return path;
}

RankGroup ranks_of_hosts(const topology::Graph& graph) {
  RankGroup group;
  for (const topology::Host& host : graph.hosts) group.ranks.push_back(host.name);
  group.interfaces.assign(graph.hosts.size(), std::vector<std::string>(graph.hosts.size()));
  for (const topology::Path& path : graph.paths()) {
    std::string& forth = group.interfaces[path.from.host][path.to.host];
    if (!forth.empty()) continue;
    forth = graph.interface_name(path.from);
    group.interfaces[path.to.host][path.from.host] = graph.interface_name(path.to);
  }
  return group;
}

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

}  // namespace plugfest::bed
