// One column of the table of `plugfest bench net`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "harness/bed/test_bed.h"
#include "harness/bench/net/rows.h"
#include "harness/control/session.h"

namespace plugfest::bench {

/// Something that is measured. Not thread-safe.
class NetSubject {
 public:
  virtual ~NetSubject() = default;
  virtual const std::string& name() const = 0;
  /// Measures a row for about `seconds`. Returns nothing for a row that does not exist here. Errors:
  /// std::runtime_error with a text for the user.
  virtual std::optional<double> measure(const NetRow& row, double seconds) = 0;
};

/// A plugin in two ranks, at the ends of the test bed's first path. `bed` must outlive it. Errors of `measure`: those
/// of harness/control.
std::unique_ptr<NetSubject> plugin_subject(bed::TestBed& bed, const std::string& plugin,
                                           const control::Limits& limits);

/// ib_write_bw and ib_write_lat between the first two hosts: what the NIC can do. `bed` must outlive it. Requires
/// TestBed::has_fabric().
std::unique_ptr<NetSubject> perftest_subject(bed::TestBed& bed);

}  // namespace plugfest::bench
