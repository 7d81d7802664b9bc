// The findings of plugfest fuzz, as text and as JSON.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/model/player.h"
#include "harness/wire/fields.h"

namespace plugfest::cli {

/// The run of a finding's schedule on the oracle.
struct OracleRun {
  /// "nccl:IB".
  std::string name = {};
  enum class Result : std::uint8_t { kPassed, kFailed, kNotRun };
  Result result = Result::kNotRun;
  /// The deviation, or the reason why the schedule did not run.
  std::string text = {};
  PLUGFEST_FIELDS(name, result, text)
};
inline std::array<std::string_view, 3> texts_of(OracleRun::Result) { return {"pass", "fail", "not run"}; }

struct FuzzReport {
  std::string plugin;
  /// "net", "gin" or "rma".
  std::string interface = "net";
  int api = 0;
  std::string topology;
  std::vector<std::string> ranks = {};
  std::uint64_t seed = 0;
  double seconds = 0;
  std::uint64_t schedules = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  int stop_signal = 0;

  std::optional<model::Finding> finding = {};
  /// Steps of the schedule before it was shrunk.
  std::size_t steps_before = 0;
  /// The file of the finding; empty if it could not be written.
  std::string file = {};
  std::string again = {};
  OracleRun oracle = {};

  /// What `messages` counts.
  std::string_view noun() const { return interface == "net" ? "message" : "operation"; }
};

/// Prints the first deviation, before the search for a smaller schedule.
void print_deviation(std::FILE* stream, const model::Schedule& schedule, const model::Deviation& deviation);
/// Prints the result of the search and of the oracle.
void print_finding(std::FILE* stream, const FuzzReport& report);
/// The document of --json.
std::string json_of(const FuzzReport& report);

/// "nccl:IB passes this schedule: the bug is in the plugin".
std::string oracle_text(const OracleRun& oracle);

}  // namespace plugfest::cli
