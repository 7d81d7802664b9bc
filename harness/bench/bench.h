// The benchmark of the NIC: rows, their measurement, and the results.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/bench/bench_hosts.h"
#include "harness/report/results.h"
#include "harness/wire/fields.h"

namespace plugfest::bench {

struct Aim {
  enum class Of { kNothing, kRatio, kFigure };
  enum class Bound { kAtLeast, kAtMost };
  Of of = Of::kNothing;
  Bound bound = Bound::kAtLeast;
  double value = 0;

  bool met_by(double figure, std::optional<double> ratio) const;
  /// "≥ 0.85"; "" without an aim.
  std::string text() const;
};

struct Row {
  std::string name;       ///< "write-bw-4096"
  std::string measure;    ///< "ib_write_bw, 1 MiB, path MTU 4096"
  std::string unit;       ///< "Gbit/s"
  std::string reference;  ///< reference of the figure; may be empty
  Aim aim = {};
};

/// One measurement of a row. The reference is the mean of measurements right before and after it.
struct Sample {
  double figure = 0;
  std::optional<double> reference = std::nullopt;
  PLUGFEST_FIELDS(figure, reference)
};

struct RowResult {
  Row row;
  std::vector<Sample> rounds;
  double figure = 0;                               ///< median of the rounds
  std::optional<double> reference = std::nullopt;  ///< median of the rounds
  std::optional<double> ratio = std::nullopt;      ///< median of the rounds' ratios
  std::optional<bool> met = std::nullopt;

  /// "≥ 0.85 ×" for a ratio; "" without an aim.
  std::string aim() const;
  PLUGFEST_FIELDS(key("name", row.name), key("measure", row.measure), key("unit", row.unit), figure,
                  key("compared_with", row.reference), reference, ratio, computed("aim", [this] { return aim(); }), met,
                  rounds)
};

struct Settings {
  std::vector<std::string> only;  ///< names of rows; empty: all
  int seconds = 1;                ///< approximate length of each measurement
  int rounds = 3;
  std::function<void(const RowResult&)> on_result = {};
  const std::atomic<bool>* stop = nullptr;  ///< ends the benchmark between rounds; may be null
};

/// All rows in the order in which they run.
std::vector<Row> rows();

/// Checks the names of rows, and that all programs are installed. Errors: std::runtime_error with a text for the user.
void check(const Settings& settings);

/// Measures the rows. Requires a sandbox: see netns::enter_sandbox(). Errors: std::runtime_error with the output of the
/// program that failed.
std::vector<RowResult> run(const Settings& settings);

/// Summarizes the rounds of a row. `rounds` must not be empty.
RowResult summarize(const Row& row, std::vector<Sample> rounds);

struct Measurement {
  std::string topology;
  Words programs;  ///< required programs of other projects
  std::vector<Row> rows;
  /// Takes about `seconds` and returns one sample for each of `rows`.
  std::function<std::vector<Sample>(BenchHosts& hosts, int seconds)> take;
};

const std::vector<Measurement>& measurements();

}  // namespace plugfest::bench
