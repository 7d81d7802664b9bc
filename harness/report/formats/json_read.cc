#include "harness/report/formats/json_read.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/report/formats/json.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

using Json = nlohmann::json;

std::vector<std::string> strings(const Json& json) { return json.get<std::vector<std::string>>(); }

std::vector<FaultRecord> read_faults(const Json& json) {
  std::vector<FaultRecord> faults;
  for (const Json& fault : json) {
    faults.push_back({.fault = fault.at("fault").get<std::string>(),
                      .source = fault.at("source").get<std::string>(),
                      .rule = fault.value("rule", ""),
                      .start = fault.at("start").get<double>(),
                      .end = fault.at("end").get<double>()});
  }
  return faults;
}

std::vector<MissedFault> read_missed_faults(const Json& json) {
  std::vector<MissedFault> faults;
  for (const Json& fault : json) {
    faults.push_back({.fault = fault.at("fault").get<std::string>(),
                      .source = fault.at("source").get<std::string>(),
                      .reason = fault.at("reason").get<std::string>()});
  }
  return faults;
}

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
  rule.faults = read_faults(json.value("faults", Json::array()));
  const Json cause = json.value("cause", Json::object());
  rule.cause = {.call = cause.value("call", ""), .place = cause.value("place", "")};
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
  run.environment = strings(json.value("environment", Json::array()));
  for (const Json& device : json.value("devices", Json::array())) {
    run.devices.push_back({.interface = device.at("interface").get<std::string>(),
                           .device = device.at("device").get<std::string>(),
                           .index = device.at("index").get<int>(),
                           .found_by = device.at("found_by").get<std::string>()});
  }
  if (json.contains("transport")) {
    const Json& transport = json.at("transport");
    run.transport = {.verbs_library = transport.at("verbs_library").get<std::string>(),
                     .is_nic = transport.at("is_nic").get<bool>(),
                     .packets = transport.at("packets").get<std::uint64_t>()};
  }
  for (const Json& rule : json.at("rules")) run.rules.push_back(read_rule(rule));
  run.faults = read_faults(json.value("faults", Json::array()));
  run.missed_faults = read_missed_faults(json.value("missed_faults", Json::array()));
  run.unfelt_faults = read_missed_faults(json.value("unfelt_faults", Json::array()));
  return run;
}

}  // namespace

namespace {

Document read(const Json& json) {
  Document document;
  document.version = json.at("tool").at("version").get<std::string>();
  document.commit = json.at("tool").at("commit").get<std::string>();
  const Json& environment = json.at("environment");
  document.environment = {.kernel = environment.at("kernel").get<std::string>(),
                          .cpu = environment.at("cpu").get<std::string>(),
                          .nic = environment.at("nic").get<std::string>(),
                          .layout = environment.at("layout").get<std::string>(),
                          .topology = environment.at("topology").get<std::string>(),
                          .privileges = environment.at("privileges").get<std::string>()};
  if (json.contains("loader")) {
    const Json& loader = json.at("loader");
    document.loader = Loader{.nccl = loader.at("nccl").get<std::string>(),
                             .api = loader.at("api").get<int>(),
                             .name = loader.at("name").get<std::string>(),
                             .devices = loader.at("devices").get<int>(),
                             .network = loader.at("network").get<std::string>(),
                             .deviation = loader.at("deviation").get<std::string>(),
                             .log = loader.at("log").get<std::string>()};
  }
  for (const Json& run : json.at("runs")) document.runs.push_back(read_run(run));
  if (json.at("interrupted").get<bool>()) document.stop_signal = SIGINT;
  return document;
}

}  // namespace

Document read_document(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    const int schema = json.at("schema").get<int>();
    if (schema != kSchema) {
      throw std::runtime_error(fmt::format(
          "schema {}: this plugfest reads schema {}; use the plugfest that wrote the file", schema, kSchema));
    }
    return read(json);
  } catch (const Json::exception& error) {
    throw std::runtime_error(fmt::format("not a results.json of plugfest: {}", error.what()));
  }
}

Document read_results(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::error_code error;
  if (!stream || std::filesystem::is_directory(path, error)) {
    throw std::runtime_error(
        fmt::format("{}: cannot read: {}", path, stream ? "is a directory" : std::strerror(errno)));
  }
  try {
    return read_document({std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()});
  } catch (const std::runtime_error& what) {
    throw std::runtime_error(fmt::format("{}: {}", path, what.what()));
  }
}

}  // namespace plugfest::report
