// plugfest bench reduction: compares allreduce in the switches of a fabric with the ring of `plugfest coll`.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "harness/bed/test_bed.h"
#include "harness/bench/bench.h"
#include "harness/control/session.h"

namespace plugfest::bench {

struct ReductionSettings {
  int rounds = 3;
  std::function<void(const RowResult&)> on_result = {};
  const std::atomic<bool>* stop = nullptr;  ///< ends the benchmark between measurements; may be null
};

/// Measures one rank on each host of `bed`, whose switches reduce. In each round the ring and the tree run one after
/// the other, and each round reverses the order of the one before. `plugin`: the plugin that the ring uses. Errors:
/// std::runtime_error with a text for the user; the errors of harness/control.
std::vector<RowResult> run_reduction_bench(bed::TestBed& bed, const std::string& plugin, const control::Limits& limits,
                                           const ReductionSettings& settings);

/// The topology to measure: `specification` with links of MTU 9000 and `rate` unless it sets them. A topology file sets
/// both. Errors: std::runtime_error if there is a `rate` already.
std::string limited_topology(const std::string& specification, const std::string& rate);

}  // namespace plugfest::bench
