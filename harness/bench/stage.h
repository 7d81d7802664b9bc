// Where a measurement takes place: hosts on a topology, a server in one and clients in others.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/roce/counters/names.h"

namespace plugfest::bench {

using Words = std::vector<std::string>;

/// Variables for a process: a value, or nothing to remove the variable.
using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

class Stage {
 public:
  /// Errors: std::runtime_error.
  explicit Stage(const std::string& topology);

  netns::Fabric& fabric() { return fabric_; }
  std::string host(std::size_t index) const { return fabric_.graph().hosts.at(index).name; }
  /// Of the first interface.
  std::string address(std::size_t host) const;

  /// Runs `argv` with the address of host 0 and returns what it printed. Errors: std::runtime_error if it fails.
  std::string run(std::size_t host, const Words& argv, const Environment& environment = {});

  /// A perftest program as server in host 0 and as client in host 1. Returns what the client printed.
  std::string perftest(const Words& argv, const Environment& environment = {});

  /// The same program in hosts 1, 2, …, each against a server of its own in host 0, all at the same time.
  std::vector<std::string> perftest_into_one(const Words& argv);

  /// TCP from host 1 to host 0, in Gbit/s.
  double tcp(int seconds);

  /// Raw UDP from host 1 to host 0 in packets of `segment_bytes`, `segments` of them a call, in Gbit/s of payload that
  /// arrived. With one a call, neither segmentation offload nor its counterpart in the receiver is in use.
  double raw_udp(int segment_bytes, int segments, double seconds);

  /// Half a round trip of raw UDP, median in µs. `memory`: the program spins on a word of memory that a thread writes
  /// which sleeps in recv; otherwise it spins in recv.
  double raw_latency(int bytes, bool memory, int iterations);

  /// What the first NIC of a host has counted, over all processes that have used it. Errors: std::runtime_error.
  roce::Counters counters(std::size_t host);

 private:
  netns::Fabric fabric_;
};

/// Program of ours, beside the running one.
std::string program(const std::string& name);

/// Refuses with one line and the command to type if one of them is not installed.
/// Errors: std::runtime_error "bench nic needs ib_write_bw: run\n    sudo apt-get install … perftest".
void require_programs(const Words& names);

}  // namespace plugfest::bench
