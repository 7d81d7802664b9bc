// What is measured between two NICs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/control/session.h"

namespace plugfest::cluster {

struct PairSettings {
  /// Of each measurement of bandwidth and of latency, about.
  double seconds = 0.2;
  std::uint64_t message_bytes = 1 << 20;
  std::uint64_t seed = 1;
};

/// Between two NICs, one and other.
struct PairOutcome {
  /// The first deviation; empty if there was none.
  std::string broken = {};
  /// Whether the plugin is to blame for it; else the harness or the host failed.
  bool plugin_failed = false;
  /// Of the first connection, from listen to both comms.
  double connect_seconds = 0;
  /// One to other, and back; 0: not measured.
  double forth_bits_per_second = 0;
  double back_bits_per_second = 0;
  /// Half a round trip, one to other and back: median, and 99 of 100 are faster.
  double latency_p50_seconds = 0;
  double latency_p99_seconds = 0;
};

nlohmann::ordered_json to_json(const PairOutcome& outcome);
/// Reads what to_json() wrote. Errors: nlohmann::json::exception.
PairOutcome outcome_from(const nlohmann::json& object);

/// Connects both ways, verifies messages of many sizes both ways, and measures. Runs in the caller's thread. `one` and
/// `other`: NICs' names. Throws nothing but control::Interrupted.
PairOutcome measure_pair(control::Session& session, const std::string& one, const std::string& other,
                         const PairSettings& settings);

}  // namespace plugfest::cluster
