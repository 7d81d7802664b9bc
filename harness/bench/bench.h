// The benchmark of the NIC: which rows there are, running them, what came out.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace plugfest::bench {

/// What a row is to reach.
struct Aim {
  enum class Of { kNothing, kRatio, kFigure };
  enum class Bound { kAtLeast, kAtMost };
  Of of = Of::kNothing;
  Bound bound = Bound::kAtLeast;
  double value = 0;

  bool met_by(double figure, std::optional<double> ratio) const;
  /// "≥ 0.85"; "" where there is none.
  std::string text() const;
};

struct Row {
  std::string name;       ///< "write-bw-4096"
  std::string measure;    ///< "ib_write_bw, 1 MiB, path MTU 4096"
  std::string unit;       ///< "Gbit/s"
  std::string reference;  ///< what it is compared with; empty: nothing
  Aim aim = {};
};

/// One measurement of a row, its reference taken right before and after.
struct Sample {
  double figure = 0;
  std::optional<double> reference = std::nullopt;
};

struct RowResult {
  Row row;
  std::vector<Sample> rounds;
  double figure = 0;  ///< median of the rounds, as the next two
  std::optional<double> reference = std::nullopt;
  std::optional<double> ratio = std::nullopt;  ///< median of the rounds' own ratios
  std::optional<bool> met = std::nullopt;
};

struct Settings {
  std::vector<std::string> only;  ///< names of rows; empty: all
  int seconds = 1;                ///< each measurement takes about that long
  int rounds = 3;
  std::function<void(const RowResult&)> on_result = {};
  const std::atomic<bool>* stop = nullptr;  ///< looked at between rounds; may be null
};

/// All rows in the order in which they run.
std::vector<Row> rows();

/// Refuses what could not run, before anything is built: names of rows that there are not, programs that are not
/// installed. Errors: std::runtime_error for the user.
void check(const Settings& settings);

/// Needs what netns::Fabric needs: see enter_sandbox(). Errors: std::runtime_error with the output of the program that
/// failed.
std::vector<RowResult> run(const Settings& settings);

/// One result made of the rounds of a row. `rounds` is not empty.
RowResult summarize(const Row& row, std::vector<Sample> rounds);

}  // namespace plugfest::bench
