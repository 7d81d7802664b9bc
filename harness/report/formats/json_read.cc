#include "harness/report/formats/json_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "fabric/system/read_file.h"
#include "harness/report/formats/curves_read.h"
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

/// A time or a figure that was measured: finite and not negative.
double figure(const Json& json) {
  const double value = json.get<double>();
  if (!(value >= 0) || !std::isfinite(value)) throw std::runtime_error(fmt::format("{}: not a figure", json.dump()));
  return value;
}

std::optional<double> figure(const Json& json, const char* name) {
  return json.contains(name) ? std::optional(figure(json.at(name))) : std::nullopt;
}

std::vector<CallSpan> read_calls(const Json& json) {
  std::vector<CallSpan> calls;
  for (const Json& call : json) {
    calls.push_back({.thread = call.at("thread").get<std::string>(),
                     .call = call.at("call").get<std::string>(),
                     .result = call.at("result").get<std::string>(),
                     .start = figure(call.at("start")),
                     .end = figure(call.at("end")),
                     .count = call.at("count").get<std::uint64_t>()});
  }
  return calls;
}

Capture read_capture(const Json& json) {
  Capture capture{
      .file = json.at("file").get<std::string>(), .packets = {}, .left_out = json.at("left_out").get<std::uint64_t>()};
  for (const Json& packet : json.at("packets")) {
    capture.packets.push_back({.time = packet.at("time").get<double>(),
                               .from = packet.at("from").get<std::string>(),
                               .to = packet.at("to").get<std::string>(),
                               .what = packet.at("what").get<std::string>(),
                               .queue_pair = packet.at("queue_pair").get<std::uint32_t>(),
                               .psn = packet.at("psn").get<std::uint32_t>(),
                               .bytes = packet.at("bytes").get<std::uint32_t>(),
                               .mark = packet.at("mark").get<std::string>()});
  }
  return capture;
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
  rule.start = figure(json, "start");
  rule.message = json.at("message").get<std::string>();
  rule.rerun = json.at("rerun").get<std::string>();
  rule.path = json.value("path", "");
  rule.known = json.value("known", "");
  rule.group = json.value("group", "");
  rule.faults = read_faults(json.value("faults", Json::array()));
  const Json nics = json.value("nics", Json::object());
  for (const auto& [interface, counters] : nics.items()) {
    NicRecord& nic = rule.nics.emplace_back(NicRecord{interface, {}});
    for (const auto& [counter, count] : counters.items())
      nic.counters.emplace_back(counter, count.get<std::uint64_t>());
  }
  const Json cause = json.value("cause", Json::object());
  rule.cause = {.call = cause.value("call", ""), .place = cause.value("place", "")};
  if (json.contains("capture")) rule.capture = read_capture(json.at("capture"));
  for (const Json& rank : json.value("ranks", Json::array())) {
    rule.ranks.push_back({.name = rank.at("name").get<std::string>(),
                          .last_calls = strings(rank.at("last_calls")),
                          .log = strings(rank.at("log")),
                          .output = rank.at("output").get<std::string>(),
                          .calls = read_calls(rank.value("calls", Json::array()))});
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

FabricRecord read_fabric(const Json& json) {
  FabricRecord fabric;
  for (const Json& node : json.at("nodes")) {
    fabric.nodes.push_back({.name = node.at("name").get<std::string>(), .tier = node.at("tier").get<int>()});
  }
  for (const Json& link : json.at("links")) {
    fabric.links.push_back({.from = link.at("from").get<std::string>(),
                            .to = link.at("to").get<std::string>(),
                            .subnet = link.at("subnet").get<std::string>(),
                            .rate_bits_per_second = link.at("rate").get<std::uint64_t>(),
                            .delay = figure(link.at("delay"))});
  }
  return fabric;
}

PairResult read_pair(const Json& json) {
  return {.subject = json.at("subject").get<std::string>(),
          .from = json.at("from").get<std::string>(),
          .to = json.at("to").get<std::string>(),
          .verdict = verdict(json.at("verdict").get<std::string>()),
          .message = json.at("message").get<std::string>(),
          .bits_per_second = figure(json, "bits_per_second"),
          .latency_p50 = figure(json, "latency_p50"),
          .latency_p99 = figure(json, "latency_p99")};
}

Curve::Kind curve_kind(const std::string& word) {
  const auto found = std::find(kCurveKinds.begin(), kCurveKinds.end(), word);
  if (found == kCurveKinds.end()) throw std::runtime_error(fmt::format("\"{}\" is no kind of curve", word));
  return static_cast<Curve::Kind>(found - kCurveKinds.begin());
}

Curve read_curve(const Json& json) {
  Curve curve{.measure = json.at("measure").get<std::string>(),
              .unit = json.at("unit").get<std::string>(),
              .subject = json.at("subject").get<std::string>(),
              .kind = curve_kind(json.at("kind").get<std::string>()),
              .points = {}};
  for (const Json& point : json.at("points")) {
    curve.points.emplace_back(point.at(0).get<std::uint64_t>(), figure(point.at(1)));
  }
  return curve;
}

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
  if (json.contains("fabric")) document.fabric = read_fabric(json.at("fabric"));
  for (const Json& pair : json.value("pairs", Json::array())) document.pairs.push_back(read_pair(pair));
  for (const Json& curve : json.value("curves", Json::array())) document.curves.push_back(read_curve(curve));
  if (json.at("interrupted").get<bool>()) document.stop_signal = SIGINT;
  return document;
}

}  // namespace

namespace {

Document read_json(const Json& json) {
  const int schema = json.at("schema").get<int>();
  if (schema != kSchema) {
    throw std::runtime_error(
        fmt::format("schema {}: this plugfest reads schema {}; use the plugfest that wrote the file", schema, kSchema));
  }
  return read(json);
}

/// Says why a file is refused, without the library's number of the error: "[json.exception.parse_error.101] ".
std::string refusal(const Json::exception& error) {
  const std::string_view what = error.what();
  return fmt::format("not a results.json of plugfest: {}", what.substr(what.starts_with('[') ? what.find(' ') + 1 : 0));
}

/// Reads with `parse`, and names the path in errors.
template <typename Parse>
Document parse_file(const std::string& path, const Parse& parse) {
  const std::string content = read_file(path);
  try {
    return parse(content);
  } catch (const Json::exception& what) {
    throw std::runtime_error(fmt::format("{}: {}", path, refusal(what)));
  } catch (const std::runtime_error& what) {
    throw std::runtime_error(fmt::format("{}: {}", path, what.what()));
  }
}

}  // namespace

Document read_document(const std::string& text) {
  try {
    return read_json(Json::parse(text));
  } catch (const Json::exception& error) {
    throw std::runtime_error(refusal(error));
  }
}

Document read_results(const std::string& path) { return parse_file(path, read_document); }

Document read_results_or_curves(const std::string& path) {
  return parse_file(path, [](const std::string& text) {
    const Json json = Json::parse(text);
    std::optional<Document> curves = read_curves(json);
    return curves ? std::move(*curves) : read_json(json);
  });
}

}  // namespace plugfest::report
