#include "harness/bed/reduction.h"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

#include "fabric/reduction/messages.h"
#include "fabric/reduction/processes.h"
#include "fabric/reduction/trees.h"
#include "fabric/system/text.h"
#include "harness/bed/test_bed.h"

namespace plugfest::bed {

bool can_reduce(const topology::Graph& graph) { return !reduction::Trees(graph).all().empty(); }

void require_reduction(const topology::Graph& graph, const std::string& user) {
  if (can_reduce(graph)) return;
  throw std::runtime_error(fmt::format(
      "{}: {} has no switches that can reduce: choose a topology with switches of one kind, such as star:4 or "
      "fat-tree:4, whose subnets have free addresses",
      user, graph.name));
}

std::shared_ptr<reduction::Processes> start_reduction(netns::Fabric& fabric, const std::string& specification) {
  // The manager reads a topology file in the folder of another process.
  return std::make_shared<reduction::Processes>(
      fabric, reduction::aggregation_program(),
      is_yaml_file(specification) ? std::filesystem::absolute(specification).string() : specification);
}

void add_reduction(const topology::Graph& graph, control::Environment& environment) {
  environment.emplace_back(reduction::kManagerVariable, reduction::manager_place(reduction::Trees(graph)).text());
  search_first_in("sharp", environment);
}

void add_absent_reduction(control::Environment& environment) {
  environment.emplace_back(reduction::kManagerVariable, "127.0.0.1:1");  // connections are refused
}

}  // namespace plugfest::bed
