#include "harness/cli/options/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "fabric/loopback/layout.h"
#include "fabric/netns/sandbox/sandbox.h"

namespace plugfest::cli {
namespace {

constexpr const char* kUsualTopology = "triangle";

std::string names_of(const std::vector<live::Record>& records) {
  std::string names;
  for (const live::Record& record : records) names += (names.empty() ? "" : ", ") + record.name;
  return names;
}

const live::Record* find(const std::vector<live::Record>& records, const std::string& name) {
  const auto found = std::find_if(records.begin(), records.end(), [&](const auto& one) { return one.name == name; });
  return found == records.end() ? nullptr : &*found;
}

topology::Graph graph_of(const live::Record& record) {
  topology::Graph graph = topology::named(record.specification);
  graph.name = record.topology;
  return graph;
}

}  // namespace

std::vector<live::Record> live_fabrics() {
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

Place::Place(topology::Graph graph, std::optional<live::Record> record)
    : graph_(std::move(graph)), record_(std::move(record)) {}

Place Place::built(const std::string& topology) { return {topology::named(topology), std::nullopt}; }

Place Place::on_loopback(const std::string& topology) {
  Place place = built(topology);
  const loopback::Layout possible(place.graph_);
  place.loopback_ = true;
  return place;
}

Place Place::live(const std::string& name) {
  live::check_name(name);
  const std::vector<live::Record> records = live_fabrics();
  if (const live::Record* record = find(records, name)) return {graph_of(*record), *record};
  throw std::runtime_error(records.empty() ? fmt::format("no fabric \"{}\": none is up", name)
                                           : fmt::format("no fabric \"{}\": up are {}", name, names_of(records)));
}

Place Place::of(const std::string& name, const std::string& topology) {
  if (!name.empty() && !topology.empty()) {
    throw std::runtime_error(fmt::format("--topology {}: fabric {} has one already; leave it out", topology, name));
  }
  if (!name.empty()) return live(name);
  if (!topology.empty()) return built(topology);
  const std::vector<live::Record> records = live_fabrics();
  if (records.empty()) return built(kUsualTopology);
  if (records.size() > 1) {
    throw std::runtime_error(fmt::format("{} fabrics are up: name one of {}", records.size(), names_of(records)));
  }
  return {graph_of(records[0]), records[0]};
}

void Place::require_node(const std::string& node) const {
  if (!graph_.has_node(node)) graph_.host(node);
}

std::optional<int> Place::enter(const Nic& nic) {
  kind_of_nic_ = nic.kind;
  if (loopback_ || nic.kind == "system") return std::nullopt;
  if (nic.kind != "roce") {
    rxe_ = std::make_unique<rxe::Rxe>(nic.allow_host_changes);
    if (rxe_->layout() == rxe::Layout::kFlat) return std::nullopt;
  }
  if (!record_) return netns::enter_sandbox();
  joined_ = live::join(live::StateFolder(), *record_);
  return netns::join_sandbox(joined_->sandbox);
}

conformance::Ground Place::ground(bool out_of_band) {
  if (loopback_) return conformance::Ground::on_loopback(graph_);
  if (kind_of_nic_ == "system") return conformance::Ground::of_this_machine();
  if (!record_) return {graph_, out_of_band, rxe_.get()};
  if (out_of_band && !record_->out_of_band) {
    throw std::runtime_error(fmt::format(
        "fabric {} has no out-of-band network: plugfest fabric up NAME --oob makes one that has", record_->name));
  }
  return {graph_, record_->out_of_band, std::move(joined_->built)};
}

std::string Place::layout() const {
  if (kind_of_nic_ == "system") return "ranks on this machine";
  return rxe_ && rxe_->layout() == rxe::Layout::kFlat ? rxe::describe(rxe_->layout()) : "";
}

}  // namespace plugfest::cli
