#include "harness/report/formats/curves_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace plugfest::report {
namespace {

using Json = nlohmann::json;

/// The measure that rows of all sizes share: "bw-64K" and "bw-1M" are of one curve. Nothing for other rows.
std::optional<std::string> measure_of(const std::string& row) {
  for (const auto& [prefix, measure] :
       {std::pair("bw-", "bandwidth, one comm"), std::pair("lat-", "half a round trip, median")}) {
    if (!row.starts_with(prefix)) continue;
    const std::string size = row.substr(std::string(prefix).size());
    // Others are "bw-4x1M", "bw-both-1M", "lat-p99-8".
    if (size.find_first_not_of("0123456789KMG") == std::string::npos) return measure;
  }
  return std::nullopt;
}

/// Adds a point to the curve of this subject and measure, which need not exist yet.
void add(std::vector<Curve>& curves, Curve curve, std::uint64_t size, double value) {
  if (!(value >= 0) || !std::isfinite(value)) throw std::runtime_error(fmt::format("{}: not a figure", value));
  auto found = std::find_if(curves.begin(), curves.end(), [&](const Curve& each) {
    return each.measure == curve.measure && each.subject == curve.subject;
  });
  if (found == curves.end()) found = curves.insert(curves.end(), std::move(curve));
  found->points.emplace_back(size, value);
}

std::vector<Curve> curves_of_bench(const Json& json) {
  std::vector<Curve> curves;
  for (const Json& row : json.at("rows")) {
    const std::optional<std::string> measure = measure_of(row.at("name").get<std::string>());
    if (!measure) continue;
    const std::string subject = row.at("subject").get<std::string>(), unit = row.at("unit").get<std::string>();
    const auto size = row.at("size").get<std::uint64_t>();
    add(curves,
        {.measure = *measure,
         .unit = unit,
         .subject = subject,
         .kind = subject == "perftest" ? Curve::Kind::kReference : Curve::Kind::kSubject,
         .points = {}},
        size, row.at("value").get<double>());
    if (!json.contains("line_rate") || unit != "Gbit/s") continue;
    Curve limit{.measure = *measure, .unit = unit, .subject = "line rate", .kind = Curve::Kind::kLimit, .points = {}};
    const auto known = std::find_if(curves.begin(), curves.end(), [&](const Curve& each) {
      return each.kind == Curve::Kind::kLimit && !each.points.empty() && each.points.back().first == size;
    });
    if (known == curves.end()) add(curves, std::move(limit), size, json.at("line_rate").get<double>() / 1e9);
  }
  return curves;
}

std::vector<Curve> curves_of_collective(const Json& json) {
  std::vector<Curve> curves;
  for (const Json& size : json.at("sizes")) {
    for (const Json& result : size.at("results")) {
      const std::string plugin = result.at("plugin").get<std::string>();
      add(curves,
          {.measure = "bus bandwidth of " + json.at("collective").get<std::string>(),
           .unit = "GB/s",
           .subject = plugin.substr(plugin.rfind('/') + 1),
           .kind = Curve::Kind::kSubject,
           .points = {}},
          size.at("bytes").get<std::uint64_t>(), result.at("busbw").get<double>());
    }
  }
  return curves;
}

}  // namespace

std::optional<Document> read_curves(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  Document document;
  if (json.contains("sizes") && json.contains("collective")) {
    document.curves = curves_of_collective(json);
    document.environment.topology = json.at("topology").get<std::string>();
    document.environment.nic = json.at("nic").get<std::string>();
    return document;
  }
  if (!json.contains("rows") || json.contains("runs")) return std::nullopt;
  document.version = json.at("tool").at("version").get<std::string>();
  document.commit = json.at("tool").at("commit").get<std::string>();
  const Json& environment = json.at("environment");
  document.environment.kernel = environment.at("kernel").get<std::string>();
  document.environment.cpu = environment.at("cpu").get<std::string>();
  document.environment.privileges = environment.at("privileges").get<std::string>();
  document.curves = curves_of_bench(json);
  if (document.curves.empty()) throw std::runtime_error("has no figures by message size; expected bench net --json");
  return document;
}

}  // namespace plugfest::report
