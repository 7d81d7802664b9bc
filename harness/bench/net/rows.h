// What `plugfest bench net` measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plugfest::bench {

/// One row of the table. The path has two endpoints; unless stated otherwise, one of them sends on one comm.
struct NetRow {
  enum class Kind : std::uint8_t {
    kBandwidth,    ///< Gbit/s, the sum of all comms and directions
    kMessageRate,  ///< million messages a second
    kLatency,      ///< half a round trip, µs
    kCpu,          ///< CPU seconds of both processes per GiB
  };
  std::string name;     ///< "bw-1M"
  std::string measure;  ///< "bandwidth of messages of 1 MiB, one comm"
  std::string unit;     ///< "Gbit/s"
  Kind kind = Kind::kBandwidth;
  std::uint64_t size = 0;
  std::uint32_t comms = 1;
  bool both_directions = false;
  std::uint32_t group = 1;        ///< messages of one receive
  std::uint32_t per_mille = 500;  ///< of kLatency: 500 is the median

  bool more_is_better() const { return kind == Kind::kBandwidth || kind == Kind::kMessageRate; }
};

/// The default sizes of bandwidth and of latency rows.
std::vector<std::uint64_t> default_sizes();

/// The rows for these sizes, in the order in which they run. Latency and message rate are measured up to 64 KiB,
/// bandwidth from 4 KiB on. Rows on many comms, both directions and CPU time use the size that is nearest to 1 MiB.
std::vector<NetRow> net_rows(const std::vector<std::uint64_t>& sizes);

/// "8", "64K", "1M".
std::string size_text(std::uint64_t bytes);
/// Reads "8,64K,1M": sizes in bytes, or with the suffix K, M or G (1024, …). Errors: std::runtime_error.
std::vector<std::uint64_t> parse_sizes(const std::string& text);

}  // namespace plugfest::bench
