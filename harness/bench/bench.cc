#include "harness/bench/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "fabric/system/number.h"
#include "harness/bench/measurements.h"

namespace plugfest::bench {

namespace {

bool is_wanted(const Settings& settings, const Row& row) {
  return settings.only.empty() ||
         std::find(settings.only.begin(), settings.only.end(), row.name) != settings.only.end();
}

bool is_wanted(const Settings& settings, const Measurement& measurement) {
  return std::any_of(measurement.rows.begin(), measurement.rows.end(),
                     [&](const Row& row) { return is_wanted(settings, row); });
}

bool stopped(const Settings& settings) { return settings.stop != nullptr && *settings.stop; }

}  // namespace

bool Aim::met_by(double figure, std::optional<double> ratio) const {
  const double value_of = of == Of::kRatio ? ratio.value_or(0) : figure;
  return bound == Bound::kAtLeast ? value_of >= value : value_of <= value;
}

std::string Aim::text() const {
  if (of == Of::kNothing) return "";
  return fmt::format("{} {:g}", bound == Bound::kAtLeast ? "≥" : "≤", value);
}

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const Measurement& measurement : measurements())
    all.insert(all.end(), measurement.rows.begin(), measurement.rows.end());
  return all;
}

RowResult summarize(const Row& row, std::vector<Sample> rounds) {
  std::vector<double> figures, references, ratios;
  for (const Sample& sample : rounds) {
    figures.push_back(sample.figure);
    if (!sample.reference) continue;
    references.push_back(*sample.reference);
    ratios.push_back(sample.figure / *sample.reference);
  }
  RowResult result{.row = row, .rounds = std::move(rounds), .figure = median(figures)};
  if (!ratios.empty()) {
    result.reference = median(references);
    result.ratio = median(ratios);
  }
  if (row.aim.of != Aim::Of::kNothing) result.met = row.aim.met_by(result.figure, result.ratio);
  return result;
}

void check(const Settings& settings) {
  std::vector<std::string> known;
  for (const Row& row : rows()) known.push_back(row.name);
  for (const std::string& name : settings.only)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw std::runtime_error(fmt::format("no row \"{}\": there are {}", name, fmt::join(known, ", ")));
  Words programs;
  for (const Measurement& measurement : measurements())
    if (is_wanted(settings, measurement))
      programs.insert(programs.end(), measurement.programs.begin(), measurement.programs.end());
  require_programs(programs);
}

std::vector<RowResult> run(const Settings& settings) {
  std::vector<RowResult> results;
  for (const Measurement& measurement : measurements()) {
    if (!is_wanted(settings, measurement) || stopped(settings)) continue;
    BenchHosts hosts(measurement.topology);
    std::vector<std::vector<Sample>> rounds(measurement.rows.size());
    for (int round = 0; round < settings.rounds && !stopped(settings); ++round) {
      try {
        const std::vector<Sample> samples = measurement.take(hosts, settings.seconds);
        for (std::size_t i = 0; i < rounds.size(); ++i) rounds[i].push_back(samples.at(i));
      } catch (const std::runtime_error&) {
        if (!stopped(settings)) throw;  // Ctrl-C also ends the programs of the measurement
      }
    }
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (!is_wanted(settings, measurement.rows[i]) || rounds[i].empty()) continue;
      results.push_back(summarize(measurement.rows[i], std::move(rounds[i])));
      if (settings.on_result) settings.on_result(results.back());
    }
  }
  return results;
}

}  // namespace plugfest::bench
