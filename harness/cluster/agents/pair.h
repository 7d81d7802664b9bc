// The measurement or the soak of a pair of NICs.
//
// The agent of one of the two hosts measures: the controller sends an order and gets a report, and no call of a rank
// passes through it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/control/session.h"
#include "harness/report/results.h"
#include "harness/wire/fields.h"

namespace plugfest::cluster {

struct PairSettings {
  /// Approximate duration of each measurement of bandwidth and of latency.
  double seconds = 0.2;
  std::uint64_t message_bytes = 1 << 20;
  std::uint64_t seed = 1;
  /// If above 0, the order is a soak of this duration instead of a measurement.
  double soak_seconds = 0;
  PLUGFEST_FIELDS(seconds, message_bytes, seed, soak_seconds)
};

struct PairOrder {
  /// Names of NICs: "h1.mlx5_0". The first one belongs to the host that measures.
  std::string one = {}, other = {};
  control::Subject subject = {};
  PairSettings settings = {};
  /// See control::Limits and HubOptions.
  double call_seconds = 10, host_seconds = 20;
  PLUGFEST_FIELDS(one, other, subject, settings, call_seconds, host_seconds)
};

/// The result for the NICs `one` and `other`.
struct PairOutcome {
  /// The first deviation; empty if there was none.
  std::string broken = {};
  /// Whether the plugin caused the deviation; otherwise the harness or the host did.
  bool plugin_failed = false;
  /// Duration of the first connection, from listen to both comms.
  double connect_seconds = 0;
  /// Bandwidth from one to other, and back; 0: not measured.
  double forth_bits_per_second = 0;
  double back_bits_per_second = 0;
  /// Half a round trip between one and other: the median, and the 99th percentile.
  double latency_p50_seconds = 0;
  double latency_p99_seconds = 0;
  PLUGFEST_FIELDS(broken, plugin_failed, connect_seconds, forth_bits_per_second, back_bits_per_second,
                  latency_p50_seconds, latency_p99_seconds)
};

struct PairReport {
  PairOutcome outcome = {};
  /// What a soak found; `outcome` has its failure.
  report::SoakRecord soak = {};
  /// The other host, or the connection to it, was lost: the pair was not measured.
  bool lost = false;
  /// The user stopped the run before the end of the measurement.
  bool interrupted = false;
  PLUGFEST_FIELDS(outcome, soak, lost, interrupted)
};

/// Whether all figures of a report are finite, and none is negative where it must not be.
bool has_valid_figures(const PairReport& report);

/// Connects both ways, verifies messages of many sizes both ways, and measures. Runs in the caller's thread. `one` and
/// `other`: NICs' names. Throws only control::Interrupted.
PairOutcome measure_pair(control::Session& session, const std::string& one, const std::string& other,
                         const PairSettings& settings);

/// Soaks a pair: see traffic::soak(). `one` and `other`: NICs' names. Throws only control::Interrupted.
PairOutcome soak_pair(control::Session& session, const std::string& one, const std::string& other,
                      const PairSettings& settings, report::SoakRecord& record);

/// The number of repetitions that take about `wanted` seconds, if `count` repetitions took `took` seconds; nullopt if
/// `took` is long enough.
std::optional<std::uint64_t> longer(std::uint64_t count, double took, double wanted);

}  // namespace plugfest::cluster
