#include "harness/bench/net/net_table.h"

#include <fmt/format.h>

#include "harness/bench/json_head.h"
#include "harness/bench/plot.h"
#include "harness/bench/table.h"
#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::bench {
namespace {

/// "7.92 (0.95)": the figure, and its ratio to the reference.
std::string cell(const NetFigure& figure) {
  if (!figure.value) return "-";
  const std::string value = number(*figure.value);
  return figure.ratio ? fmt::format("{} ({:.2f})", value, *figure.ratio) : value + "       ";
}

}  // namespace

std::string net_heading(const std::vector<std::string>& subjects) {
  std::string line = fmt::format("{:<14} {:<7}", "row", "");
  for (const std::string& subject : subjects) line += fmt::format(" {:>13}", subject.substr(0, 13));
  return line + '\n';
}

std::string net_line(const NetResult& result) {
  std::string line = fmt::format("{:<14} {:<7}", result.row.name, result.row.unit);
  for (const NetFigure& figure : result.figures) line += fmt::format(" {:>13}", cell(figure));
  return line + '\n';
}

std::string net_markdown(const std::vector<NetResult>& results) {
  if (results.empty()) return "";
  std::string text = "| measure |", rule = "|---|";
  for (const NetFigure& figure : results.front().figures) {
    text += fmt::format(" {} |", figure.subject);
    rule += "---|";
  }
  text += '\n' + rule + '\n';
  for (const NetResult& result : results) {
    text += fmt::format("| {}, {} |", result.row.measure, result.row.unit);
    for (const NetFigure& figure : result.figures) {
      text += figure.ratio   ? fmt::format(" {} ({:.2f}) |", number(*figure.value), *figure.ratio)
              : figure.value ? fmt::format(" {} |", number(*figure.value))
                             : std::string(" |");
    }
    text += '\n';
  }
  return text;
}

std::string net_json(const std::vector<NetResult>& results, const report::Document& document,
                     std::array<double, 2> load) {
  nlohmann::ordered_json json = json_head(document, load);
  const std::vector<report::FabricRecord::Link>& links = document.fabric.links;
  if (!links.empty() && links.front().rate_bits_per_second != 0) json["line_rate"] = links.front().rate_bits_per_second;
  for (const NetResult& result : results) {
    for (const NetFigure& figure : result.figures) {
      if (!figure.value) continue;
      nlohmann::ordered_json row = {{"name", result.row.name},   {"measure", result.row.measure},
                                    {"subject", figure.subject}, {"size", result.row.size},
                                    {"value", *figure.value},    {"unit", result.row.unit},
                                    {"rounds", figure.rounds}};
      if (figure.ratio) {
        row["reference"] = result.reference;
        row["ratio"] = *figure.ratio;
      }
      json["rows"].push_back(std::move(row));
    }
  }
  return wire::json_text(json);
}

std::string net_plot(const std::vector<NetResult>& results) {
  static constexpr std::array kColours = {"#555555", "#0b6e4f", "#c8553d", "#3d5a80", "#8f2d56", "#6a4c93"};
  std::vector<Series> all;
  for (const NetResult& result : results) {
    if (result.row.kind != NetRow::Kind::kBandwidth || result.row.comms != 1 || result.row.both_directions) continue;
    all.resize(result.figures.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].name = result.figures[i].subject;
      all[i].colour = kColours[i % kColours.size()];
      if (result.figures[i].value) all[i].points.emplace_back(result.row.size, *result.figures[i].value);
    }
  }
  return log_plot("Bandwidth of one comm", "message size in bytes", "Gbit/s", all);
}

}  // namespace plugfest::bench
