// What is measured between two NICs.
//
// The agent of one of the two hosts measures, so that the controller sends an order and gets a report, and no call of a
// rank passes through it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/control/session.h"
#include "harness/wire/fields.h"

namespace plugfest::cluster {

struct PairSettings {
  /// Of each measurement of bandwidth and of latency, about.
  double seconds = 0.2;
  std::uint64_t message_bytes = 1 << 20;
  std::uint64_t seed = 1;
  PLUGFEST_FIELDS(seconds, message_bytes, seed)
};

struct PairOrder {
  /// Names of NICs: "h1.mlx5_0". The first one is of the host that measures.
  std::string one = {}, other = {};
  control::Subject subject = {};
  PairSettings settings = {};
  /// As control::Limits and HubOptions.
  double call_seconds = 10, host_seconds = 20;
  PLUGFEST_FIELDS(one, other, subject, settings, call_seconds, host_seconds)
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
  PLUGFEST_FIELDS(broken, plugin_failed, connect_seconds, forth_bits_per_second, back_bits_per_second,
                  latency_p50_seconds, latency_p99_seconds)
};

struct PairReport {
  PairOutcome outcome = {};
  /// The other host, or the way to it, was lost: nothing was found out about the pair.
  bool lost = false;
  PLUGFEST_FIELDS(outcome, lost)
};

/// Connects both ways, verifies messages of many sizes both ways, and measures. Runs in the caller's thread. `one` and
/// `other`: NICs' names. Throws nothing but control::Interrupted.
PairOutcome measure_pair(control::Session& session, const std::string& one, const std::string& other,
                         const PairSettings& settings);

/// How often to repeat what took `took` seconds for `count` times, so that it takes about `wanted` seconds; nullopt if
/// it took long enough.
std::optional<std::uint64_t> longer(std::uint64_t count, double took, double wanted);

}  // namespace plugfest::cluster
