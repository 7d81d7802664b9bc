// Rounds of measurements of several subjects, in turns.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/bench/net/rows.h"
#include "harness/bench/net/subject.h"

namespace plugfest::bench {

/// The figures of one subject in one row.
struct NetFigure {
  std::string subject;
  std::vector<double> rounds;
  std::optional<double> value;  ///< median of the rounds; nothing where the row does not exist for the subject
  std::optional<double> ratio;  ///< median of the rounds' ratios to the reference; nothing for the reference itself
};

struct NetResult {
  NetRow row;
  std::string reference;           ///< the first subject that has this row
  std::vector<NetFigure> figures;  ///< one for each subject
};

struct NetSettings {
  std::vector<NetRow> rows;
  double seconds = 1;  ///< approximate length of each measurement
  int rounds = 3;
  std::function<void(const NetResult&)> on_result = {};
  const std::atomic<bool>* stop = nullptr;  ///< ends the benchmark between measurements; may be null
};

/// Measures all rows. In each round, the subjects take turns. Errors: those of NetSubject::measure, with the name of
/// the subject and the row in front.
std::vector<NetResult> run_net_bench(const std::vector<std::unique_ptr<NetSubject>>& subjects,
                                     const NetSettings& settings);

/// Fills in values, ratios and the reference from the rounds.
void summarize(NetResult& result);

}  // namespace plugfest::bench
