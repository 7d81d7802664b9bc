#include "harness/report/formats/json.h"

#include <nlohmann/json.hpp>

#include "harness/report/cause.h"
#include "harness/report/formats/json_text.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

using Json = nlohmann::ordered_json;

Json faults_json(const std::vector<FaultRecord>& faults) {
  Json json = Json::array();
  for (const FaultRecord& fault : faults) {
    Json each = {{"fault", fault.fault}, {"source", fault.source}, {"start", fault.start}, {"end", fault.end}};
    if (!fault.rule.empty()) each["rule"] = fault.rule;
    json.push_back(each);
  }
  return json;
}

Json rule_json(const RuleResult& rule) {
  Json json = {{"id", rule.id},
               {"clause", rule.title},
               {"text", rule.text},
               {"source", rule.source},
               {"level", std::string(1, rule.level)},
               {"verdict", text(rule.verdict)},
               {"seconds", rule.seconds},
               {"message", rule.message},
               {"rerun", rule.rerun}};
  if (!rule.path.empty()) json["path"] = rule.path;
  if (!rule.known.empty()) json["known"] = rule.known;
  if (!rule.cause.call.empty()) json["cause"] = {{"call", rule.cause.call}, {"place", rule.cause.place}};
  if (!rule.faults.empty()) json["faults"] = faults_json(rule.faults);
  for (const RankRecord& rank : rule.ranks) {
    json["ranks"].push_back(
        {{"name", rank.name}, {"last_calls", rank.last_calls}, {"log", rank.log}, {"output", rank.output}});
  }
  return json;
}

Json rules_json(const std::vector<RuleResult>& rules) {
  Json json = Json::array();
  for (const RuleResult& rule : rules) json.push_back(rule_json(rule));
  return json;
}

Json causes_json(const std::vector<RuleResult>& rules) {
  Json json = Json::array();
  for (const CauseGroup& group : group_by_cause(rules)) {
    Json ids = Json::array();
    for (const RuleResult* rule : group.rules) ids.push_back(rule->id);
    json.push_back({{"text", group.text}, {"start", group.start->id}, {"rules", ids}});
  }
  return json;
}

Json run_json(const Run& run) {
  Json json = {{"plugin", {{"path", run.plugin_path}, {"name", run.plugin_name}, {"versions", run.apis}}},
               {"interface", run.interface},
               {"api", run.api},
               {"seed", run.seed},
               {"seconds", run.seconds},
               {"idle_cpu_share", run.idle_cpu_share},
               {"devices", Json::array()},
               {"environment", run.environment},
               {"causes", causes_json(run.rules)},
               {"rules", rules_json(run.rules)}};
  for (const DeviceRecord& each : run.devices) {
    json["devices"].push_back(
        {{"interface", each.interface}, {"device", each.device}, {"index", each.index}, {"found_by", each.found_by}});
  }
  if (run.transport) {
    json["transport"] = {{"verbs_library", run.transport->verbs_library},
                         {"is_nic", run.transport->is_nic},
                         {"packets", run.transport->packets}};
  }
  if (run.faults.empty() && run.missed_faults.empty()) return json;
  json["faults"] = faults_json(run.faults);
  const auto missed_json = [](const std::vector<MissedFault>& faults) {
    Json list = Json::array();
    for (const MissedFault& each : faults) {
      list.push_back({{"fault", each.fault}, {"source", each.source}, {"reason", each.reason}});
    }
    return list;
  };
  json["missed_faults"] = missed_json(run.missed_faults);
  json["unfelt_faults"] = missed_json(run.unfelt_faults);
  return json;
}

Json mutant_json(const MutantResult& mutant) {
  return {{"name", mutant.name},
          {"rule", mutant.rules},
          {"killed", mutant.killed},
          {"killed_by", mutant.killed_by},
          {"caught_wrongly", mutant.caught_wrongly},
          {"seconds", mutant.seconds},
          {"evidence", rules_json(mutant.evidence)}};
}

}  // namespace

std::string to_json(const Document& document) {
  const Environment& environment = document.environment;
  Json json = {{"schema", kSchema},
               {"tool", {{"version", document.version}, {"commit", document.commit}}},
               {"environment",
                {{"kernel", environment.kernel},
                 {"cpu", environment.cpu},
                 {"nic", environment.nic},
                 {"layout", environment.layout},
                 {"topology", environment.topology},
                 {"privileges", environment.privileges}}},
               {"interrupted", document.stop_signal != 0}};
  if (document.loader) {
    json["loader"] = {{"nccl", document.loader->nccl},       {"api", document.loader->api},
                      {"name", document.loader->name},       {"devices", document.loader->devices},
                      {"network", document.loader->network}, {"deviation", document.loader->deviation},
                      {"log", document.loader->log}};
  }
  json["runs"] = Json::array();
  for (const Run& run : document.runs) json["runs"].push_back(run_json(run));
  json["flaky"] = Json::array();
  for (const Flake& flake : find_flakes(document.runs)) {
    Json verdicts;
    for (const Verdict verdict : kVerdicts) {
      if (flake.verdicts.of(verdict) != 0) verdicts[std::string(text(verdict))] = flake.verdicts.of(verdict);
    }
    json["flaky"].push_back({{"id", flake.id}, {"api", flake.api}, {"verdicts", verdicts}});
  }
  const Summary summary = summarize(document.runs);
  for (const Verdict verdict : kVerdicts) json["summary"][std::string(text(verdict))] = summary.of(verdict);
  if (!document.mutants.empty()) {
    json["mutants"] = Json::array();
    for (const MutantResult& mutant : document.mutants) json["mutants"].push_back(mutant_json(mutant));
  }
  return json_text(json);
}

}  // namespace plugfest::report
