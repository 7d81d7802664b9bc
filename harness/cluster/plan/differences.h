// Compares the facts of hosts.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace plugfest::cluster {

/// Hosts of one cluster that should be equal, and are not.
struct Difference {
  /// "firmware of mlx5_0", "plugin".
  std::string what;
  /// Hosts by value, the most frequent value first.
  std::vector<std::pair<std::string, std::vector<std::string>>> values;

  /// "firmware of mlx5_0: 20.31.1014 on 15 hosts; 20.29.2002 on h3"
  std::string text() const;
};

/// `facts`: JSON of agent/facts.h, by host; what is no such JSON counts as a host without facts. Returns one entry for
/// each fact that is not the same on all hosts with facts.
std::vector<Difference> find_differences(const std::map<std::string, std::string>& facts);

}  // namespace plugfest::cluster
