// What perftest and iperf3 print, as numbers.
#pragma once

#include <string_view>

namespace plugfest::bench {

/// The result line of ib_write_bw and its like, run with --report_gbits.
struct Bandwidth {
  double gbits_per_second = 0;             ///< average
  double million_messages_per_second = 0;  ///< average
};

/// The result line of ib_send_lat and its like, run with -n.
struct Latency {
  double median_us = 0;  ///< half a round trip
};

/// Errors, all three: std::runtime_error "no result in the output of ib_write_bw:" and the output.
Bandwidth read_bandwidth(std::string_view program, std::string_view output);
Latency read_latency(std::string_view program, std::string_view output);
/// What the receiver got, in Gbit/s, of `iperf3 --json`.
double read_iperf(std::string_view output);

/// The number after `name` on a line of its own: the probes print "name number".
double read_named(std::string_view program, std::string_view output, std::string_view name);

}  // namespace plugfest::bench
