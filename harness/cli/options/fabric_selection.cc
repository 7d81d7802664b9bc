#include "harness/cli/options/fabric_selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "fabric/netns/sandbox.h"
#include "harness/bed/roce.h"
#include "harness/cli/options/subject.h"

namespace plugfest::cli {
namespace {

constexpr const char* kDefaultTopology = "triangle";

std::string names_of(const std::vector<live::Record>& records) {
  std::string names;
  for (const live::Record& record : records) names += (names.empty() ? "" : ", ") + record.name;
  return names;
}

}  // namespace

std::vector<live::Record> background_fabrics() {
  const std::optional<live::StateFolder> folder = live::StateFolder::existing();
  if (!folder) return {};
  std::vector<live::Record> stale;
  std::vector<live::Record> alive = live::list(*folder, stale);
  for (const live::Record& dead : stale) {
    fmt::print(stderr, "plugfest: fabric {} is gone: its keeper, process {}, was killed; cleaned up\n", dead.name,
               dead.keeper);
  }
  return alive;
}

live::Record background_fabric(const std::string& name) {
  live::check_name(name);
  const std::vector<live::Record> records = background_fabrics();
  const auto found = std::find_if(records.begin(), records.end(), [&](const auto& one) { return one.name == name; });
  if (found != records.end()) return *found;
  throw std::runtime_error(records.empty() ? fmt::format("no fabric \"{}\": none is up", name)
                                           : fmt::format("no fabric \"{}\": up are {}", name, names_of(records)));
}

FabricSelection::FabricSelection(topology::Graph graph, std::optional<live::Record> record)
    : graph_(std::move(graph)), record_(std::move(record)) {}

topology::Graph FabricSelection::graph_of(const live::Record& record) {
  std::string problem = record.problem;
  try {
    if (problem.empty()) {
      topology::Graph graph = topology::named(record.specification);
      graph.name = record.topology;
      return graph;
    }
  } catch (const std::runtime_error& error) {
    problem = error.what();
  }
  throw std::runtime_error(fmt::format("fabric {}: {}; {} fabric down {} removes it", record.name, problem,
                                       shell_word(program_as_typed()), record.name));
}

FabricSelection FabricSelection::built(const std::string& topology) {
  return {topology::named(topology), std::nullopt};
}

FabricSelection FabricSelection::background(const std::string& name) {
  const live::Record record = background_fabric(name);
  return {graph_of(record), record};
}

FabricSelection FabricSelection::of(const std::string& name, const std::string& topology) {
  if (!name.empty() && !topology.empty()) {
    throw std::runtime_error(fmt::format("--topology {}: fabric {} has one already; leave it out", topology, name));
  }
  if (!name.empty()) return background(name);
  if (!topology.empty()) return built(topology);
  const std::vector<live::Record> records = background_fabrics();
  if (records.empty()) return built(kDefaultTopology);
  if (records.size() > 1) {
    throw std::runtime_error(fmt::format("{} fabrics are up: name one of {}", records.size(), names_of(records)));
  }
  return {graph_of(records[0]), records[0]};
}

void FabricSelection::require_node(const std::string& node) const {
  if (!graph_.has_node(node)) graph_.host(node);
}

void FabricSelection::take_turn() {
  if (!record_) return;
  turn_ = live::StateFolder().take_turn(*record_, [&](pid_t holder) {
    fmt::print(stderr, "plugfest: waiting for another run on fabric {}{}\n", record_->name,
               holder > 0 ? fmt::format(" (pid {})", holder) : "");
  });
}

std::optional<int> FabricSelection::enter(bed::NicKind& nic) {
  if (!record_) return nic.enter();
  joined_ = live::join(live::StateFolder(), *record_);
  return netns::join_sandbox(joined_->sandbox);
}

bed::TestBed FabricSelection::build(bed::NicKind& nic, bool out_of_band) {
  if (!record_) return nic.build(graph_, out_of_band);
  if (out_of_band && !record_->out_of_band) {
    throw std::runtime_error(fmt::format(
        "fabric {} has no out-of-band network: plugfest fabric up NAME --oob builds a fabric with one", record_->name));
  }
  return bed::roce_test_bed(graph_, record_->out_of_band, std::move(joined_->built));
}

}  // namespace plugfest::cli
