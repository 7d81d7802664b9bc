#include "harness/cli/run/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "conformance/rules/rule.h"
#include "fabric/system/text.h"
#include "harness/bed/library_folder.h"
#include "harness/cli/run/last_failed.h"
#include "harness/cli/run/tool_launcher.h"
#include "harness/control/session.h"
#include "harness/plugin/nccl.h"
#include "harness/traffic/nccl/control/rank_group.h"

namespace plugfest::cli {
namespace {

/// Returns the I-th of N parts of the rules. `shard`: "I/N". Errors: std::runtime_error.
std::vector<const conformance::Rule*> take_shard(const std::vector<const conformance::Rule*>& rules,
                                                 const std::string& shard) {
  std::size_t index = 0, parts = 0;
  int length = 0;
  const bool complete = std::sscanf(shard.c_str(), "%4zu/%4zu%n", &index, &parts, &length) == 2 &&
                        static_cast<std::size_t>(length) == shard.size();
  if (!complete || index < 1 || index > parts) {
    throw std::runtime_error(fmt::format("--shard \"{}\": expected which part of how many, such as 1/4", shard));
  }
  std::vector<const conformance::Rule*> part;
  for (std::size_t i = index - 1; i < rules.size(); i += parts) part.push_back(rules[i]);
  if (part.empty()) {
    throw std::runtime_error(fmt::format("--shard {}: only {} to share out", shard, counted(rules.size(), "rule")));
  }
  return part;
}

/// Returns those of `rules` that failed the last time. If no rule at all failed, returns `rules`.
std::vector<const conformance::Rule*> keep_last_failed(std::vector<const conformance::Rule*> rules,
                                                       const Plugin& plugin) {
  if (LastFailed::folder().empty()) {
    throw std::runtime_error("--last-failed: there is no folder with earlier results: set XDG_STATE_HOME or HOME");
  }
  const LastFailed last(plugin.load);
  if (last.rules().empty()) {
    fmt::print(stderr, "plugfest: --last-failed: no failed rule is recorded in {}, so all rules run\n",
               LastFailed::folder());
    return rules;
  }
  std::erase_if(rules, [&](const conformance::Rule* rule) { return !last.rules().contains(rule->id); });
  if (rules.empty()) {
    throw std::runtime_error(
        fmt::format("--last-failed: none of these rules failed the last time, but {}", fmt::join(last.rules(), ", ")));
  }
  return rules;
}

/// Sets the variables of --env, which ranks inherit, and leaves those that nccl_variables() does not name.
void set_environment(std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw std::runtime_error(fmt::format("--env \"{}\": expected NAME=VALUE", variable));
    }
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  std::erase_if(variables, [](const std::string& variable) { return variable.starts_with("NCCL_"); });
}

/// Refuses options that the NIC kind does not support.
void check_combination(const RunArguments& arguments, const bed::NicKind& nic) {
  const bed::NicSupport support = nic.support();
  if (const std::string driver = bed::library_folder() + "/nccl/libcuda.so.1";
      arguments.emulate_gpu && !std::filesystem::exists(driver)) {
    throw std::runtime_error(fmt::format("--emulate-gpu: {} is missing: build the target nccl_ranks", driver));
  }
  if (arguments.out_of_band && !support.out_of_band) {
    throw std::runtime_error(fmt::format("--nic {}: there is no fabric: leave out --oob", nic.name()));
  }
  if (!arguments.faults.text().empty() && !support.faults) {
    throw std::runtime_error(
        fmt::format("--faults: only the NIC in user space on a fabric supports them: leave out --nic {}", nic.name()));
  }
  if (arguments.captures.wanted() && !support.faults) {
    throw std::runtime_error(
        fmt::format("--pcap: only the NIC in user space on a fabric captures packets: leave out --nic {}", nic.name()));
  }
  if (!arguments.fabric.empty() && !support.background_fabric) {
    throw std::runtime_error(fmt::format("--nic {}: fabric {} already has NICs, of the kind {}", nic.name(),
                                         arguments.fabric, bed::default_nic_kind()->name()));
  }
}

/// Refuses a run with NCCL where it cannot run.
void check_nccl(const Plugin& plugin, const bed::NicKind& nic, const topology::Graph& graph) {
  if (!nic.support().faults) {
    throw std::runtime_error(
        fmt::format("--with-nccl: NCCL needs the fabric with the NIC in user space: leave out --nic {}", nic.name()));
  }
  if (plugin::find_nccl().empty()) {
    throw std::runtime_error(fmt::format("--with-nccl: no libnccl.so.2: run\n    {}", plugin::kFetchNccl));
  }
  nccl::check_reach(plugin.load, graph);
}

}  // namespace

bool runs_nccl(const RunArguments& arguments) {
  return arguments.with_nccl || conformance::ask_for_nccl(conformance::catalogue(), arguments.patterns);
}

std::vector<const conformance::Rule*> selected_rules(const RunArguments& arguments) {
  auto rules = conformance::select_rules(conformance::catalogue(), arguments.patterns,
                                         {.nccl = runs_nccl(arguments), .thorough = arguments.thorough});
  if (rules.empty())
    throw std::runtime_error("--rule: these rules take a minute or gigabytes of memory: add --thorough");
  if (arguments.last_failed) rules = keep_last_failed(std::move(rules), find_plugin(arguments.plugin, false));
  return arguments.shard.empty() ? rules : take_shard(rules, arguments.shard);
}

double PreparedRun::call_seconds(const RunArguments& arguments) const {
  return control::Limits{}.call_seconds * arguments.timeout_scale * nic->timeout_scale();
}

PreparedRun prepare(RunArguments& arguments, std::vector<const conformance::Rule*> rules) {
  std::unique_ptr<bed::NicKind> nic = arguments.nic.make();
  check_combination(arguments, *nic);
  if (arguments.fail_fast) arguments.max_failures = 1;
  if (arguments.last_failed && nic->name() == std::string("vm")) {
    throw std::runtime_error("--last-failed: the virtual machine does not see earlier results: leave out --nic vm");
  }
  set_environment(arguments.environment);
  arguments.console.style();  // checks its options
  FabricSelection fabric = arguments.fabric.empty() ? FabricSelection::built(arguments.topology)
                                                    : FabricSelection::background(arguments.fabric);
  nic->check_topology(fabric.graph());
  Plugin plugin = find_plugin(arguments.plugin, false);
  std::vector<PluginVersion> versions = choose_versions(plugin, arguments.interface, arguments.api);
  std::erase_if(versions, [&](const PluginVersion& version) {
    return std::none_of(rules.begin(), rules.end(),
                        [&](const conformance::Rule* rule) { return rule->apis.interface == version.interface; });
  });
  if (versions.empty()) {
    throw std::runtime_error(
        "--rule: none of these rules is about an interface that is judged; plugfest rules lists all");
  }
  if (runs_nccl(arguments)) check_nccl(plugin, *nic, fabric.graph());
  if (!arguments.wrap.empty() && !attaches_to_rank(arguments.wrap)) require_runnable(arguments.wrap);
  if (attaches_to_rank(arguments.wrap) &&
      rules.size() * versions.size() * static_cast<std::size_t>(arguments.repeat) != 1) {
    throw std::runtime_error("--wrap with {pid}: attaches to a rank of one rule: name the rule with --rule");
  }
  report::KnownFindings known = arguments.known_findings();
  std::vector<bed::DeviceChoice> devices;
  for (const std::string& text : arguments.devices) devices.push_back(bed::parse_device_choice(text));
  std::optional<bed::RankPath> path;
  if (!arguments.path.empty()) path = bed::parse_path(arguments.path, fabric.graph());
  const std::uint64_t seed = arguments.chosen_seed();
  arguments.faults.read(fabric.graph(), rules, seed);
  report::Document document = new_document(nic->name(), fabric.graph().name);
  arguments.outputs.open();
  arguments.timeline.open();
  arguments.captures.open();
  return {.rules = std::move(rules),
          .nic = std::move(nic),
          .fabric = std::move(fabric),
          .plugin = std::move(plugin),
          .versions = std::move(versions),
          .known = std::move(known),
          .devices = std::move(devices),
          .path = std::move(path),
          .seed = seed,
          .document = std::move(document)};
}

}  // namespace plugfest::cli
