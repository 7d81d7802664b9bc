// The file of bench net --json, and the comparison of two runs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/bench/net_bench.h"
#include "harness/report/results.h"
#include "harness/wire/fields.h"

namespace plugfest::bench {

/// A run of bench net. See docs/results.md.
struct NetRecord {
  static constexpr int kSchema = 1;

  /// The figures of one subject in one row.
  struct Row {
    std::string name;
    std::string measure = {};
    std::string subject;
    std::uint64_t size = 0;
    double value = 0;
    std::string unit;
    std::vector<double> rounds;
    std::optional<std::string> reference = {};
    std::optional<double> ratio = {};
    PLUGFEST_FIELDS(name, measure, subject, size, figure(value), unit, figure(rounds), reference, figure(ratio))
  };

  int schema = kSchema;
  std::string version = {}, commit = {};
  std::string kernel, cpu, privileges = {};
  std::vector<double> load = {};  ///< before and after the run
  std::string topology;
  double seconds = 0;  ///< the duration of a measurement
  std::vector<Row> rows;
  std::optional<double> line_rate = {};
  PLUGFEST_FIELDS(schema, key("tool.version", version), key("tool.commit", commit), key("environment.kernel", kernel),
                  key("environment.cpu", cpu), key("environment.privileges", privileges), key("environment.load", load),
                  topology, figure(seconds), rows, line_rate)
};

/// `load`: the machine's load averages before and after the benchmark. `seconds`: NetSettings::seconds.
NetRecord net_record(const std::vector<NetResult>& results, const report::Document& document,
                     std::array<double, 2> load, double seconds);
std::string net_json(const NetRecord& record);
/// Errors: std::runtime_error, including if the file is not such a record.
NetRecord read_net_record(const std::string& path);

/// How a subject's figure in a row changed from one run to another.
struct NetChange {
  enum class Verdict : std::uint8_t { kSlower, kSame, kFaster };
  std::string name, subject, unit;
  double before = 0, now = 0;
  double noise = 0;  ///< the smallest relative change of the figure that is not noise
  Verdict verdict = Verdict::kSame;
};

/// Rounds that each run of a comparison must have.
inline constexpr int kRoundsToCompare = 3;

/// Errors: std::runtime_error that names what differs if the figures of a run with the machine and parameters of `now`
/// and with `rows` cannot be compared with the figures of `before`. `path`: the file of `before`, for messages.
void require_comparable(const NetRecord& before, const NetRecord& now, const std::vector<NetRow>& rows,
                        const std::string& path);

/// Compares the figures that both runs have. A change is noise unless
///  - the medians of the rounds differ by more than 5 %, and by more than three times the root of the summed squares
///    of both standard deviations. The standard deviation of a run is 1.4826 times the median absolute deviation of
///    the rounds from their median, and at least the median of that value over all rows of the run: three rounds may
///    agree by chance;
///  - a rank test (Mann-Whitney, one-sided, 5 %) of the rounds confirms it. With three rounds in each run, each round
///    of one run is then better than each of the other;
///  - both are true in the same direction for the ratios to perftest in the same round, if both runs have them, because
///    the load of the machine may change all figures.
std::vector<NetChange> compare(const NetRecord& before, const NetRecord& now);
bool any_slower(const std::vector<NetChange>& changes);
/// A heading, one line for each change beyond noise, and their numbers.
std::string changes_text(const std::vector<NetChange>& changes, const std::string& path);

}  // namespace plugfest::bench
