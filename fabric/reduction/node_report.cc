#include "fabric/reduction/node_report.h"

#include <array>
#include <limits>
#include <numeric>

#include "fabric/reduction/messages.h"

namespace plugfest::reduction {
namespace {

// In the order of Drop.
constexpr std::array<const char*, kDrops> kDropNames = {"malformed", "unknown_group", "foreign", "out_of_window",
                                                        "mismatch"};

}  // namespace

std::uint64_t NodeReport::drops() const {
  return std::accumulate(counters.drops.begin(), counters.drops.end(), std::uint64_t{0});
}

nlohmann::ordered_json to_json(const NodeReport& report) {
  nlohmann::ordered_json drops;
  for (std::size_t i = 0; i < kDrops; ++i) drops[kDropNames[i]] = report.counters.drops[i];
  return {{"groups", report.groups},
          {"memory_bytes", report.memory_bytes},
          {"contributions", report.counters.contributions},
          {"repeats", report.counters.repeats},
          {"results", report.counters.results},
          {"drops", std::move(drops)}};
}

std::optional<NodeReport> parse_report(const nlohmann::json& object) {
  bool valid = object.is_object() && object.contains("drops") && object["drops"].is_object();
  if (!valid) return std::nullopt;
  const auto read = [&](const nlohmann::json& from, const char* name) {
    const auto value = integer_of(from, name, 0, std::numeric_limits<std::uint64_t>::max());
    valid = valid && value;
    return value.value_or(0);
  };
  NodeReport report;
  report.switch_name = text_of(object, "switch");
  report.groups = read(object, "groups");
  report.memory_bytes = read(object, "memory_bytes");
  report.counters.contributions = read(object, "contributions");
  report.counters.repeats = read(object, "repeats");
  report.counters.results = read(object, "results");
  for (std::size_t i = 0; i < kDrops; ++i) report.counters.drops[i] = read(object["drops"], kDropNames[i]);
  return valid ? std::optional(report) : std::nullopt;
}

}  // namespace plugfest::reduction
