// What was measured beside the verdicts of rules: pairs of NICs, and figures by message size.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

/// One pair of NICs, in one direction.
struct PairResult {
  std::string subject;  ///< what connected them, "Mesh v12"
  std::string from;     ///< the sender, "a.eth0"
  std::string to;       ///< the receiver
  /// Of connecting and verifying. kWarn: it works, and is an outlier. kMissing: not reached.
  Verdict verdict = Verdict::kMissing;
  /// The verdict in words: "0.11 × the median of rail 0". May be empty.
  std::string message;
  /// Nothing: not measured.
  std::optional<double> bits_per_second;
  /// Seconds, half a round trip.
  std::optional<double> latency_p50;
  std::optional<double> latency_p99;
};

/// Words for Curve::Kind in results.json, by its values.
inline constexpr std::array<std::string_view, 3> kCurveKinds = {"subject", "reference", "limit"};

/// One measure of one subject by message size.
struct Curve {
  enum class Kind : std::uint8_t {
    kSubject,    ///< a plugin
    kReference,  ///< what it is compared with: perftest
    kLimit,      ///< line rate
  };
  std::string measure;  ///< "bandwidth, one comm"; curves of one measure share a chart
  std::string unit;     ///< "Gbit/s"
  std::string subject;  ///< "Mesh", "perftest", "line rate"
  Kind kind = Kind::kSubject;
  /// Message size in bytes, and value in `unit`; by size.
  std::vector<std::pair<std::uint64_t, double>> points;
};

}  // namespace plugfest::report
