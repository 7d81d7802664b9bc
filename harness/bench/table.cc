#include "harness/bench/table.h"

#include <fmt/format.h>

#include <cstdlib>

#include "harness/bench/json_head.h"
#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::bench {

std::string number(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

namespace {

std::string met(const RowResult& result) { return !result.met ? "" : *result.met ? "yes" : "NO"; }

std::string reference(const RowResult& result) { return result.reference ? number(*result.reference) : ""; }

std::string ratio(const RowResult& result) { return result.ratio ? fmt::format("{:.2f}", *result.ratio) : ""; }

std::string aim(const RowResult& result) {
  const std::string text = result.row.aim.text();
  return result.row.aim.of == Aim::Of::kRatio ? text + " ×" : text;
}

constexpr const char* kColumns = "{:<18} {:>7} {:<7} {:>9} {:>6}  {:<8} {}\n";
constexpr std::size_t kIndent = 2;

}  // namespace

std::string table_heading() { return fmt::format(kColumns, "row", "figure", "", "reference", "ratio", "aim", "met"); }

std::string table_row(const RowResult& result) {
  const Row& row = result.row;
  const std::string measure = row.reference.empty() ? row.measure : row.measure + "; reference: " + row.reference;
  return fmt::format(kColumns, row.name, number(result.figure), row.unit, reference(result), ratio(result), aim(result),
                     met(result)) +
         std::string(kIndent, ' ') + report::wrapped(measure, kIndent) + '\n';
}

std::string markdown(const std::vector<RowResult>& results) {
  std::string text = "| measure | figure | reference | ratio | aim | met |\n|---|---|---|---|---|---|\n";
  for (const RowResult& result : results) {
    const std::string against =
        result.row.reference.empty() ? "" : fmt::format("{} ({})", reference(result), result.row.reference);
    text += fmt::format("| {} | {} {} | {} | {} | {} | {} |\n", result.row.measure, number(result.figure),
                        result.row.unit, against, ratio(result), aim(result), met(result));
  }
  return text;
}

std::string to_json(const std::vector<RowResult>& results, const report::Document& document,
                    std::array<double, 2> load) {
  const auto or_null = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json = json_head(document, load);
  for (const RowResult& result : results) {
    nlohmann::ordered_json rounds = nlohmann::ordered_json::array();
    for (const Sample& sample : result.rounds)
      rounds.push_back({{"figure", sample.figure}, {"reference", or_null(sample.reference)}});
    json["rows"].push_back({{"name", result.row.name},
                            {"measure", result.row.measure},
                            {"unit", result.row.unit},
                            {"figure", result.figure},
                            {"compared_with", result.row.reference},
                            {"reference", or_null(result.reference)},
                            {"ratio", or_null(result.ratio)},
                            {"aim", aim(result)},
                            {"met", or_null(result.met)},
                            {"rounds", rounds}});
  }
  return wire::json_text(json);
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace plugfest::bench
