#include "harness/bed/run_bed.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "fabric/netns/namespace_restriction.h"
#include "fabric/netns/sandbox.h"
#include "fabric/system/process.h"
#include "harness/bed/reduction.h"

namespace plugfest::bed {
namespace {

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
    fmt::print(stderr, "plugfest: removed fabric {}: its keeper, process {}, had been killed\n", dead.name,
               dead.keeper);
  }
  return alive;
}

live::Record background_fabric(const std::string& name) {
  live::check_name(name);
  const std::vector<live::Record> records = background_fabrics();
  const auto found =
      std::find_if(records.begin(), records.end(), [&](const auto& record) { return record.name == name; });
  if (found != records.end()) return *found;
  throw std::runtime_error(
      records.empty() ? fmt::format("no fabric \"{}\": none is up", name)
                      : fmt::format("no fabric \"{}\": the fabrics that are up are {}", name, names_of(records)));
}

topology::Graph graph_of(const live::Record& record) {
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
                                       program_as_typed(), record.name));
}

FabricChoice FabricChoice::built(const std::string& topology) { return {topology::named(topology)}; }

FabricChoice FabricChoice::background(const std::string& name) {
  const live::Record record = background_fabric(name);
  return {graph_of(record), record};
}

FabricChoice FabricChoice::of(const std::string& name, const std::string& topology) {
  if (!name.empty() && !topology.empty())
    throw std::runtime_error(
        fmt::format("--topology {}: fabric {} already has a topology: leave out --topology", topology, name));
  if (!name.empty()) return background(name);
  if (!topology.empty()) return built(topology);
  const std::vector<live::Record> records = background_fabrics();
  if (records.empty()) return built(RunOptions{}.topology);
  if (records.size() > 1)
    throw std::runtime_error(fmt::format("{} fabrics are up: name one of {}", records.size(), names_of(records)));
  return {graph_of(records[0]), records[0]};
}

void FabricChoice::require_node(const std::string& node) const {
  if (!graph.has_node(node)) graph.host(node);
}

RunBed::RunBed(const RunOptions& options)
    : nic_(make_nic_kind(options.nic, options.nic_options)),
      is_run_(true),
      out_of_band_(options.out_of_band),
      timeout_scale_(options.timeout_scale) {
  const NicSupport support = nic_->support();
  if (options.out_of_band && !support.out_of_band)
    throw std::runtime_error(fmt::format("--nic {}: there is no fabric: leave out --oob", nic_->name()));
  if (!options.fabric.empty() && !support.background_fabric) {
    throw std::runtime_error(fmt::format("--nic {}: fabric {} already has NICs, of the kind {}", nic_->name(),
                                         options.fabric, default_nic_kind()->name()));
  }
  fabric_ = options.fabric.empty() ? FabricChoice::built(options.topology) : FabricChoice::background(options.fabric);
  nic_->check_topology(graph());
  if (!options.reduction_for.empty()) require_reducing_bed(options.reduction_for);
  for (const std::string& text : options.devices) devices_.push_back(parse_device_choice(text));
  if (!options.path.empty()) path_ = parse_path(options.path, graph());
}

void RunBed::require_reducing_bed(const std::string& user) {
  if (!nic_->support().reduction)
    throw std::runtime_error(fmt::format("{}: with --nic {}, there are no switches that reduce", user, nic_->name()));
  require_reduction(graph(), user);
  if (record() && !record()->reduction) {
    throw std::runtime_error(
        fmt::format("{}: the switches of fabric {} do not reduce: {} fabric up NAME --reduction builds a fabric whose "
                    "switches do",
                    user, record()->name, program_as_typed()));
  }
  starts_reduction_ = !record();
}

RunBed::RunBed(FabricChoice fabric, const std::string& reduction_for)
    : nic_(default_nic_kind()), fabric_(std::move(fabric)) {
  nic_->check_topology(graph());
  if (!reduction_for.empty()) require_reducing_bed(reduction_for);
}

double RunBed::call_seconds() const { return control::Limits{}.call_seconds * timeout_scale_ * nic_->timeout_scale(); }

std::optional<int> RunBed::enter() {
  try {
    if (!record()) return nic_->enter();
    const auto say_who_has_it = [&](pid_t holder) {
      fmt::print(stderr, "plugfest: waiting for another run on fabric {}{}\n", record()->name,
                 holder > 0 ? fmt::format(" (pid {})", holder) : "");
    };
    if (is_run_) turn_ = live::StateFolder().take_turn(*record(), say_who_has_it);
    joined_ = live::join(live::StateFolder(), *record());
    if (const std::optional<int> exit_code = netns::join_sandbox(joined_->sandbox)) return exit_code;
    // A background fabric outlives a run, and so would processes that the plugin started. Commands of `fabric exec` may
    // leave processes, as daemons do.
    return is_run_ ? netns::contain_processes() : std::nullopt;
  } catch (const netns::NamespacesForbidden& forbidden) {
    const char* const advice = is_run_ ? "\n  or add --nic loopback, which needs no namespaces" : "";
    throw std::runtime_error(std::string(forbidden.what()) + advice);
  }
}

TestBed& RunBed::build(bool out_of_band) {
  out_of_band = out_of_band || out_of_band_;
  bed_.reset();
  if (!record()) {
    bed_.emplace(nic_->build(graph(), out_of_band));
  } else if (out_of_band && !record()->out_of_band) {
    throw std::runtime_error(
        fmt::format("fabric {} has no out-of-band network: {} fabric up NAME --oob builds a fabric "
                    "with one",
                    record()->name, program_as_typed()));
  } else {
    bed_.emplace(roce_test_bed(graph(), record()->out_of_band, std::move(joined_->built)));
  }
  if (starts_reduction_) bed_->start_reduction();
  if (record() && record()->reduction) bed_->use_reduction();
  if (path_) bed_->set_path(*path_);
  check_device_choices(devices_, bed_->interfaces());
  return *bed_;
}

std::vector<DeviceMatch> RunBed::find_devices(control::Subject& subject, control::Session& session) {
  std::vector<DeviceMatch> matches = match_devices(session, *bed_, devices_, call_seconds());
  for (const DeviceMatch& match : matches)
    if (match.found_by != "name") subject.devices[match.rank] = match.device;
  return matches;
}

}  // namespace plugfest::bed
