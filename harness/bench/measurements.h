// The measurements. One measurement may produce several rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/bench/bench.h"
#include "harness/bench/bench_hosts.h"

namespace plugfest::bench {

struct Measurement {
  std::string topology;
  Words programs;  ///< that must be installed, from other projects
  std::vector<Row> rows;
  /// Takes about `seconds` and returns one sample for each of `rows`.
  std::function<std::vector<Sample>(BenchHosts& hosts, int seconds)> take;
};

/// In the order in which they run.
const std::vector<Measurement>& measurements();

}  // namespace plugfest::bench
