#include "harness/report/formats/json.h"

#include <nlohmann/json.hpp>

#include "harness/report/cause.h"
#include "harness/report/verdict.h"
#include "harness/wire/json.h"

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

Json calls_json(const std::vector<CallSpan>& calls) {
  Json json = Json::array();
  for (const CallSpan& call : calls) {
    json.push_back({{"thread", call.thread},
                    {"call", call.call},
                    {"result", call.result},
                    {"start", call.start},
                    {"end", call.end},
                    {"count", call.count}});
  }
  return json;
}

Json capture_json(const Capture& capture) {
  Json json = {{"file", capture.file}, {"left_out", capture.left_out}, {"packets", Json::array()}};
  for (const PacketRecord& packet : capture.packets) {
    json["packets"].push_back({{"time", packet.time},
                               {"from", packet.from},
                               {"to", packet.to},
                               {"what", packet.what},
                               {"queue_pair", packet.queue_pair},
                               {"psn", packet.psn},
                               {"bytes", packet.bytes},
                               {"mark", packet.mark}});
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
  if (!rule.group.empty()) json["group"] = rule.group;
  if (rule.start) json["start"] = *rule.start;
  if (!rule.path.empty()) json["path"] = rule.path;
  if (!rule.known.empty()) json["known"] = rule.known;
  if (!rule.cause.call.empty()) json["cause"] = {{"call", rule.cause.call}, {"place", rule.cause.place}};
  if (!rule.faults.empty()) json["faults"] = faults_json(rule.faults);
  if (rule.capture) json["capture"] = capture_json(*rule.capture);
  for (const NicRecord& nic : rule.nics) {
    for (const auto& [counter, count] : nic.counters) json["nics"][nic.interface][counter] = count;
  }
  for (const RankRecord& rank : rule.ranks) {
    json["ranks"].push_back({{"name", rank.name},
                             {"last_calls", rank.last_calls},
                             {"log", rank.log},
                             {"output", rank.output},
                             {"calls", calls_json(rank.calls)}});
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

Json fabric_json(const FabricRecord& fabric) {
  Json json = {{"nodes", Json::array()}, {"links", Json::array()}};
  for (const FabricRecord::Node& node : fabric.nodes) {
    json["nodes"].push_back({{"name", node.name}, {"tier", node.tier}});
  }
  for (const FabricRecord::Link& link : fabric.links) {
    json["links"].push_back({{"from", link.from},
                             {"to", link.to},
                             {"subnet", link.subnet},
                             {"rate", link.rate_bits_per_second},
                             {"delay", link.delay}});
  }
  return json;
}

Json pair_json(const PairResult& pair) {
  Json json = {{"subject", pair.subject},
               {"from", pair.from},
               {"to", pair.to},
               {"verdict", text(pair.verdict)},
               {"message", pair.message}};
  if (pair.bits_per_second) json["bits_per_second"] = *pair.bits_per_second;
  if (pair.latency_p50) json["latency_p50"] = *pair.latency_p50;
  if (pair.latency_p99) json["latency_p99"] = *pair.latency_p99;
  return json;
}

Json curve_json(const Curve& curve) {
  return {{"measure", curve.measure},
          {"unit", curve.unit},
          {"subject", curve.subject},
          {"kind", kCurveKinds[static_cast<std::size_t>(curve.kind)]},
          {"points", curve.points}};
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
  if (!document.fabric.nodes.empty()) json["fabric"] = fabric_json(document.fabric);
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
  for (const PairResult& pair : document.pairs) json["pairs"].push_back(pair_json(pair));
  for (const Curve& curve : document.curves) json["curves"].push_back(curve_json(curve));
  return wire::json_text(json);
}

}  // namespace plugfest::report
