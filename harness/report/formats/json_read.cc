#include "harness/report/formats/json_read.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/report/formats/json.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

using Json = nlohmann::json;

std::vector<std::string> strings(const Json& json) { return json.get<std::vector<std::string>>(); }

RuleResult read_rule(const Json& json) {
  RuleResult rule;
  rule.id = json.at("id").get<std::string>();
  rule.title = json.at("clause").get<std::string>();
  rule.text = json.at("text").get<std::string>();
  rule.source = json.at("source").get<std::string>();
  rule.level = (json.at("level").get<std::string>() + "M").front();
  rule.verdict = verdict(json.at("verdict").get<std::string>());
  rule.seconds = json.at("seconds").get<double>();
  rule.message = json.at("message").get<std::string>();
  rule.rerun = json.at("rerun").get<std::string>();
  rule.path = json.value("path", "");
  rule.known = json.value("known", "");
  for (const Json& rank : json.value("ranks", Json::array())) {
    rule.ranks.push_back({.name = rank.at("name").get<std::string>(),
                          .last_calls = strings(rank.at("last_calls")),
                          .log = strings(rank.at("log")),
                          .output = rank.at("output").get<std::string>()});
  }
  return rule;
}

Run read_run(const Json& json) {
  Run run;
  run.plugin_path = json.at("plugin").at("path").get<std::string>();
  run.plugin_name = json.at("plugin").at("name").get<std::string>();
  run.apis = json.at("plugin").at("versions").get<std::vector<int>>();
  run.api = json.at("api").get<int>();
  run.seed = json.at("seed").get<std::uint64_t>();
  run.seconds = json.at("seconds").get<double>();
  run.idle_cpu_share = json.at("idle_cpu_share").get<double>();
  for (const Json& rule : json.at("rules")) run.rules.push_back(read_rule(rule));
  return run;
}

}  // namespace

std::vector<Run> read_runs(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    const int schema = json.at("schema").get<int>();
    if (schema != kSchema) {
      throw std::runtime_error(fmt::format(
          "schema {}: this plugfest reads schema {}; use the plugfest that wrote the file", schema, kSchema));
    }
    std::vector<Run> runs;
    for (const Json& run : json.at("runs")) runs.push_back(read_run(run));
    return runs;
  } catch (const Json::exception& error) {
    throw std::runtime_error(fmt::format("not a results.json of plugfest: {}", error.what()));
  }
}

}  // namespace plugfest::report
