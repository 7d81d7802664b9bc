// Runs the programs of a measurement, a server in one host and clients in others, and parses the output of perftest,
// iperf3 and the probes.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/roce/counters/counters.h"

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

using Words = std::vector<std::string>;
/// Splits formatted text at its spaces.
template <typename... Values>
Words words(fmt::format_string<const Values&...> format, const Values&... values) {
  std::istringstream text(fmt::format(format, values...));
  return {std::istream_iterator<std::string>(text), {}};
}

/// Environment variables of a process. std::nullopt removes the variable.
using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

class BenchHosts {
 public:
  /// Builds the hosts of `topology`. Errors: std::runtime_error.
  explicit BenchHosts(const std::string& topology);
  /// Uses the hosts of `fabric`, which must outlive this object.
  explicit BenchHosts(netns::Fabric& fabric) : fabric_(fabric) {}

  netns::Fabric& fabric() { return fabric_; }
  std::string host(std::size_t index) const { return fabric_.graph().hosts.at(index).name; }
  std::string address(std::size_t host) const;

  /// Runs `argv` in a host and returns its output. Errors: std::runtime_error if the program fails.
  std::string run(std::size_t host, const Words& argv, const Environment& environment = {});

  /// Runs a perftest program as server in host 0 and as client in host 1. Returns the client's output.
  std::string perftest(const Words& argv, const Environment& environment = {});

  /// Runs a perftest program in hosts 1, 2, … at the same time, each with its own server in host 0. Returns the
  /// clients' outputs.
  std::vector<std::string> perftest_into_one(const Words& argv);

  /// Bandwidth of TCP from host 1 to host 0, in Gbit/s.
  double tcp(int seconds);

  /// Bandwidth of raw UDP from host 1 to host 0, in Gbit/s of received payload. Each call sends `packets` packets of
  /// `packet_bytes`. With one packet per call, neither GSO nor GRO is in use. `checked`: whether the programs also do
  /// what a NIC does: CRCs, a congestion window and acknowledgements.
  double udp(int packet_bytes, int packets, double seconds, bool checked = false);

  /// Median of half a round trip of raw UDP, in µs. `memory`: the program polls a word of memory that a second thread,
  /// which sleeps in recv, writes. Otherwise the program polls recv.
  double raw_latency(int bytes, bool memory, int iterations);

  /// Counters of a host's first NIC, summed over all processes. Errors: std::runtime_error.
  roce::Counters counters(std::size_t host);

 private:
  std::unique_ptr<netns::Fabric> own_fabric_;
  netns::Fabric& fabric_;
};

std::string program(const std::string& name);

/// Checks that the programs `names` are installed.
/// Errors: std::runtime_error "bench needs ib_write_bw: run\n    sudo apt-get install … perftest".
void require_programs(const Words& names);

}  // namespace plugfest::bench
