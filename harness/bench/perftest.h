// Parses the output of perftest, iperf3 and the probes.
#pragma once

#include <string_view>

namespace plugfest::bench {

/// The result line of ib_write_bw and similar programs with --report_gbits.
struct Bandwidth {
  double gbits_per_second = 0;             ///< average
  double million_messages_per_second = 0;  ///< average
};

/// The result line of ib_send_lat and similar programs with -n.
struct Latency {
  double median_us = 0;  ///< half a round trip
};

/// Errors of all functions: std::runtime_error "no result in the output of ib_write_bw:" with the output.
Bandwidth read_bandwidth(std::string_view program, std::string_view output);
Latency read_latency(std::string_view program, std::string_view output);
/// The receiver's bandwidth in Gbit/s, from `iperf3 --json`.
double read_iperf(std::string_view output);

/// The number after `name`. The probes print lines of "name number".
double read_named(std::string_view program, std::string_view output, std::string_view name);

}  // namespace plugfest::bench
