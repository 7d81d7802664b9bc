// Selects mutants and runs them, one at a time on each path.
#include "conformance/mutants/kill.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "conformance/rules/runner.h"
#include "harness/plugin/layout.h"
#include "harness/report/verdict.h"

namespace plugfest::mutants {
namespace {

using conformance::Rule;
using report::MutantResult;

/// Rules that must not fail on this mutant. None of them transfers a message, since most mutants break transfers. For
/// mutants of DP rules none of them looks up devices by name.
std::vector<std::string> unaffected_rules(const conformance::Catalogue& catalogue, const Mutant& mutant) {
  if (mutant.mutate == nullptr) return {};  // NCCL cannot call a library mutant, so most rules fail on it
  std::vector<std::string> candidates = {"LD-02", "LD-06", "DP-01", "DP-18", "CN-02"};
  if (mutant.breaks.front().starts_with("DP-")) candidates = {"LD-02", "LD-06", "DP-18"};
  std::vector<std::string> rules;
  for (const std::string& id : candidates) {
    const bool broken = std::find(mutant.breaks.begin(), mutant.breaks.end(), id) != mutant.breaks.end();
    if (!broken && catalogue.find(id) != nullptr) rules.push_back(id);
  }
  return rules;
}

MutantResult run_mutant(testbed::TestBed& bed, const testbed::RankPath& path, const conformance::Catalogue& catalogue,
                        const KillSettings& settings, const Mutant& mutant) {
  const auto start = std::chrono::steady_clock::now();
  MutantResult result;
  result.name = mutant.name;
  result.rules = mutant.breaks;
  const std::vector<std::string> unaffected = unaffected_rules(catalogue, mutant);

  conformance::RunSettings run;
  for (const auto* ids : {&mutant.breaks, &unaffected}) {
    for (const std::string& id : *ids) run.rules.push_back(catalogue.find(id));
  }
  run.paths = {path};
  run.hosts = bed.hosts();
  run.library = fmt::format("{}/libnccl-net-{}.so", settings.folder, mutant.name);
  run.api = mutant.api != 0 ? mutant.api : plugin::kNewestApi;
  run.injector = bed.injector();
  run.seed = settings.seed;
  run.stop = settings.stop;
  run.rerun = fmt::format("{} run --plugin {} --api v{} --seed {}", settings.program, run.library, run.api, run.seed);
  control::Session session(bed.launcher(), bed.subject(run.library, run.api), settings.limits);

  for (const report::RuleResult& rule : conformance::run_rules(&session, catalogue, run)) {
    const bool must_catch = std::find(mutant.breaks.begin(), mutant.breaks.end(), rule.id) != mutant.breaks.end();
    if (must_catch && report::is_broken(rule.verdict)) result.killed_by.push_back(rule.id);
    if (!must_catch && !report::is_good(rule.verdict)) result.caught_wrongly.push_back(rule.id);
    result.evidence.push_back(rule);
  }
  result.killed = result.killed_by.size() == mutant.breaks.size();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace

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
      return !mutant.is_variant() && fnmatch(pattern.c_str(), mutant.name.c_str(), 0) == 0;
    });
    if (!matches) throw std::runtime_error("no mutant matches '" + pattern + "': plugfest mutants --list names them");
  }
  for (const Mutant& mutant : mutants) {
    if (mutant.is_variant()) continue;
    const bool wanted = patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
                          return fnmatch(pattern.c_str(), mutant.name.c_str(), 0) == 0;
                        });
    if (wanted) selected.push_back(&mutant);
  }
  return selected;
}

std::vector<MutantResult> kill(testbed::TestBed& bed, const conformance::Catalogue& catalogue,
                               const KillSettings& settings) {
  for (const Mutant* mutant : settings.mutants) {
    for (const std::string& id : mutant->breaks) {
      if (catalogue.find(id) == nullptr) throw std::logic_error(fmt::format("mutant {}: no rule {}", mutant->name, id));
    }
  }
  std::vector<MutantResult> results(settings.mutants.size());
  std::atomic<std::size_t> next = 0;
  std::mutex reporting;
  auto serve = [&](const testbed::RankPath& path) {
    for (std::size_t i = next++; i < settings.mutants.size(); i = next++) {
      MutantResult result = run_mutant(bed, path, catalogue, settings, *settings.mutants[i]);
      if (settings.stop != nullptr && settings.stop->load()) return;
      results[i] = std::move(result);
      const std::lock_guard lock(reporting);
      if (settings.on_result) settings.on_result(results[i]);
    }
  };
  std::vector<std::thread> workers;
  for (const testbed::RankPath& path : bed.paths()) workers.emplace_back(serve, path);
  for (std::thread& worker : workers) worker.join();
  std::erase_if(results, [](const MutantResult& result) { return result.name.empty(); });
  return results;
}

}  // namespace plugfest::mutants
