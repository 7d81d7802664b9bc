#include "conformance/mutants/kill.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <stdexcept>

#include "conformance/rules/rule_body.h"
#include "conformance/rules/runner.h"
#include "conformance/rules/turns.h"
#include "fabric/system/clock.h"
#include "fabric/system/process.h"
#include "harness/bed/devices.h"
#include "harness/bed/reduction.h"
#include "harness/plugin/layout.h"
#include "harness/report/verdict.h"

namespace plugfest::mutants {
namespace {

using conformance::Rule;
using report::MutantResult;

using Paths = std::vector<bed::RankPath>;

bool declares(const Mutant& mutant, const std::string& id) {
  return std::find(mutant.breaks.begin(), mutant.breaks.end(), id) != mutant.breaks.end();
}

bool declares_group(const Mutant& mutant, const std::string& prefix) {
  return std::any_of(mutant.breaks.begin(), mutant.breaks.end(),
                     [&](const std::string& id) { return id.starts_with(prefix); });
}

bool may_break(const Mutant& mutant, const std::string& id) {
  return std::any_of(mutant.may_break.begin(), mutant.may_break.end(),
                     [&](const std::string& pattern) { return fnmatch(pattern.c_str(), id.c_str(), 0) == 0; });
}

// Whether the mutant declares a rule of this kind.
bool breaks_any(const Mutant& mutant, const conformance::Catalog& catalog, bool conformance::Declaration::*kind) {
  return std::any_of(mutant.breaks.begin(), mutant.breaks.end(), [&](const std::string& id) {
    const Rule* const rule = catalog.find(id);
    return rule != nullptr && rule->declaration.*kind;
  });
}

MutantResult run_mutant(bed::TestBed& bed, const Paths& paths, const conformance::Catalog& catalog,
                        const KillSettings& settings, const Mutant& mutant, conformance::Turns& turns) {
  const Stopwatch watch;
  MutantResult result;
  result.name = mutant.name;
  result.rules = mutant.breaks;

  conformance::RunSettings run;
  run.paths = paths;
  run.hosts = bed.hosts();
  run.library = fmt::format("{}/libnccl-net-{}.so", settings.folder, mutant.name);
  run.interface = mutant.interface;
  run.api = mutant.api != 0 ? mutant.api : plugin::interface_of(run.interface).newest;
  run.injector = bed.injector();
  run.among_runs = &turns;
  if (settings.nccl) {
    run.nccl = {.bed = &bed,
                .plugin = run.library,
                .seconds = conformance::NcclSetting::kCallsOfOperation * settings.limits.call_seconds,
                .stop_fd = settings.limits.stop_fd};
  }
  run.seed = settings.seed;
  run.stop = settings.stop;
  const std::string interface = run.interface == plugin::InterfaceKind::kNet
                                    ? ""
                                    : fmt::format(" --interface {}", plugin::interface_of(run.interface).name);
  const std::string topology = needs_two_links(mutant, catalog) || needs_reduction(mutant, catalog)
                                   ? fmt::format(" --topology {}", bed.graph().name)
                                   : "";
  run.rerun = fmt::format("{} run --plugin {}{}{} --api v{} --seed {}", settings.program, run.library, interface,
                          topology, run.api, run.seed);
  control::Subject subject = bed.subject(run.library, run.api, run.interface);
  bed::report_lost_peers_soon(subject.environment);
  run.gpu = mutant.emulate_gpu;
  if (run.gpu) bed::search_first_in("nccl", subject.environment);
  if (mutant.match_devices) {
    control::Session trial(bed.launcher(), subject, settings.limits);
    for (const bed::DeviceMatch& match : bed::match_devices(trial, bed, {}, settings.limits.call_seconds))
      subject.devices[match.rank] = match.device;
  }
  control::Session session(bed.launcher(), std::move(subject), settings.limits);

  std::vector<const Rule*> rules = rules_for(catalog, mutant, settings.coverage, settings.rules);
  std::erase_if(result.rules, [&](const std::string& id) {
    return std::none_of(rules.begin(), rules.end(), [&](const Rule* rule) { return rule->id == id; });
  });
  // Other rules would repeat their checks ten times.
  const auto thorough =
      std::stable_partition(rules.begin(), rules.end(), [](const Rule* rule) { return !rule->declaration.thorough; });
  std::vector<report::RuleResult> results;
  for (const bool in_thorough : {false, true}) {
    run.rules = in_thorough ? std::vector(thorough, rules.end()) : std::vector(rules.begin(), thorough);
    run.thorough = in_thorough || settings.thorough;
    if (run.rules.empty()) continue;
    const auto part = conformance::run_rules(&session, catalog, run);
    results.insert(results.end(), part.begin(), part.end());
  }
  // Rules also fail on a library that cannot be loaded, whatever the mutant is.
  if (!mutant.refuses_calls) {
    control::Lease lease = session.lease();
    lease.rank(paths.front().near, {.state = control::RankState::kLoaded});
  }
  result.killed = true;
  for (const report::RuleResult& rule : results) {
    const bool must_kill = declares(mutant, rule.id), broken = report::is_broken(rule.verdict);
    result.killed = result.killed && (broken || !must_kill);
    if (broken) (must_kill || may_break(mutant, rule.id) ? result.killed_by : result.undeclared).push_back(rule.id);
    result.evidence.push_back(rule);
  }
  result.seconds = watch.seconds();
  return result;
}

}  // namespace

bool needs_nccl(const Mutant& mutant, const conformance::Catalog& catalog) {
  return breaks_any(mutant, catalog, &conformance::Declaration::runs_nccl);
}

bool needs_two_links(const Mutant& mutant, const conformance::Catalog& catalog) {
  return breaks_any(mutant, catalog, &conformance::Declaration::two_links);
}

bool needs_reduction(const Mutant& mutant, const conformance::Catalog& catalog) {
  return mutant.interface == plugin::InterfaceKind::kCollNet && needs_nccl(mutant, catalog);
}

bool has_two_links(const topology::Graph& graph) {
  const std::vector<topology::Path> paths = graph.paths();
  return std::any_of(paths.begin(), paths.end(), [&](const topology::Path& path) {
    return conformance::second_path(graph, {graph.interface_name(path.from), graph.interface_name(path.to)});
  });
}

bool is_thorough(const Mutant& mutant, const conformance::Catalog& catalog) {
  return breaks_any(mutant, catalog, &conformance::Declaration::thorough);
}

std::vector<const Rule*> rules_for(const conformance::Catalog& catalog, const Mutant& mutant, Coverage coverage,
                                   std::span<const std::string> patterns) {
  const conformance::Extent extent = {.nccl = needs_nccl(mutant, catalog), .thorough = is_thorough(mutant, catalog)};
  std::vector<const Rule*> rules = conformance::select_rules(catalog, patterns, extent);
  std::erase_if(rules, [&](const Rule* rule) {
    if (!rule->apis.is_about(mutant.interface)) return true;
    if (declares(mutant, rule->id)) return false;
    // Soaks take seconds of CPU time, and send only what other rules also send; so do the rules about profiler
    // events if the plugin reports none that are wrong. NCCL itself ends on any error. Without the rule that covers
    // undefined codes, every rule in which a call returns one would fail.
    return coverage == Coverage::kDeclared || mutant.refuses_calls || rule->group() == "SK" ||
           (rule->group() == "PF" && !declares_group(mutant, "PF-")) || rule->declaration.runs_nccl ||
           (coverage == Coverage::kDecisive && may_break(mutant, rule->id) &&
            !rule->declaration.covers_undefined_codes);
  });
  return rules;
}

std::string default_folder() { return bed::library_folder() + "/mutants"; }

const std::vector<Mutant>& load_mutants(const std::string& folder) {
  const std::string file = folder + "/libmutant-shim.so";
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(fmt::format("the mutants cannot be loaded: {}", dlerror()));
  const auto list = reinterpret_cast<const std::vector<Mutant>* (*)()>(dlsym(library, "plugfest_mutants"));
  if (list == nullptr) throw std::runtime_error(file + ": is not the library of the mutants");
  return *list();
}

std::vector<const Mutant*> select_mutants(const std::vector<Mutant>& mutants,
                                          const std::vector<std::string>& patterns) {
  std::vector<const Mutant*> selected;
  for (const std::string& pattern : patterns) {
    const bool matches = std::any_of(mutants.begin(), mutants.end(), [&](const Mutant& mutant) {
      return !mutant.breaks.empty() && fnmatch(pattern.c_str(), mutant.name.c_str(), 0) == 0;
    });
    if (!matches)
      throw std::runtime_error(
          fmt::format("no mutant matches '{}': {} mutants --list names them", pattern, program_as_typed()));
  }
  for (const Mutant& mutant : mutants) {
    if (mutant.breaks.empty()) continue;
    const bool wanted = patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
                          return fnmatch(pattern.c_str(), mutant.name.c_str(), 0) == 0;
                        });
    if (wanted) selected.push_back(&mutant);
  }
  return selected;
}

std::vector<MutantResult> kill(bed::TestBed& bed, const conformance::Catalog& catalog, const KillSettings& settings) {
  for (const Mutant* mutant : settings.mutants) {
    for (const std::string& id : mutant->breaks)
      if (catalog.find(id) == nullptr) throw std::logic_error(fmt::format("mutant {}: no rule {}", mutant->name, id));
    for (const std::string& pattern : mutant->may_break) {
      const std::vector<std::string> ids = catalog.ids();
      const bool matches = std::any_of(ids.begin(), ids.end(),
                                       [&](const auto& id) { return fnmatch(pattern.c_str(), id.c_str(), 0) == 0; });
      if (!matches) throw std::logic_error(fmt::format("mutant {}: no rule {}", mutant->name, pattern));
    }
  }
  std::vector<MutantResult> results(settings.mutants.size());
  // Jobs of NCCL use all hosts and links.
  std::vector<std::size_t> shared, alone;
  const bool two_links = has_two_links(bed.graph()), reduces = bed::can_reduce(bed.graph());
  for (std::size_t i = 0; i < settings.mutants.size(); ++i) {
    const Mutant& mutant = *settings.mutants[i];
    if ((two_links || !needs_two_links(mutant, catalog)) && (reduces || !needs_reduction(mutant, catalog)))
      (needs_nccl(mutant, catalog) ? alone : shared).push_back(i);
  }
  if (!settings.nccl) alone.clear();
  std::atomic<std::size_t> next = 0;
  std::mutex reporting;
  conformance::Turns turns;  // mutants on different paths share hosts
  auto serve = [&](const Paths& paths, const std::vector<std::size_t>& numbers) {
    for (std::size_t number = next++; number < numbers.size(); number = next++) {
      const std::size_t i = numbers[number];
      MutantResult result = run_mutant(bed, paths, catalog, settings, *settings.mutants[i], turns);
      if (settings.stop != nullptr && settings.stop->load()) return;
      results[i] = std::move(result);
      const std::lock_guard lock(reporting);
      if (settings.on_result) settings.on_result(results[i]);
    }
  };
  std::vector<std::future<void>> workers;
  const auto start = [&](const Paths& paths) {
    workers.push_back(std::async(std::launch::async, [&, paths] { serve(paths, shared); }));
  };
  if (settings.coverage != Coverage::kDeclared)
    start(bed.paths());
  else
    for (const bed::RankPath& path : bed.paths()) start({path});
  for (std::future<void>& worker : workers) worker.get();
  next = 0;
  serve(bed.paths(), alone);
  std::erase_if(results, [](const MutantResult& result) { return result.name.empty(); });
  return results;
}

}  // namespace plugfest::mutants
