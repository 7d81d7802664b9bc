// What an aggregation node reports about itself.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fabric/reduction/node.h"

namespace plugfest::reduction {

struct NodeReport {
  std::string switch_name;
  std::size_t groups = 0;
  std::size_t memory_bytes = 0;  ///< resident
  NodeCounters counters;

  std::uint64_t drops() const;
};

/// {"groups": …, "memory_bytes": …, "contributions": …, "repeats": …, "results": …, "drops": {"malformed": …, …}}
nlohmann::ordered_json to_json(const NodeReport& report);
/// Reads that object with the member "switch". nullopt if it is not a report.
std::optional<NodeReport> parse_report(const nlohmann::json& object);

}  // namespace plugfest::reduction
