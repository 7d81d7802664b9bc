// plugfest bench net and rma: their rows and subjects, and the rounds in which the subjects alternate.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/bed/test_bed.h"
#include "harness/control/session.h"

namespace plugfest::bench {

/// The subject that runs perftest, and the units in which more is better.
inline constexpr const char* kPerftest = "perftest";
inline constexpr const char* kBandwidthUnit = "Gbit/s";
inline constexpr const char* kRateUnit = "M/s";

/// One row of the table. The path has two endpoints; unless stated otherwise, one of them sends on one comm.
struct NetRow {
  enum class Kind : std::uint8_t {
    kBandwidth,    ///< Gbit/s, the sum of all comms and directions
    kMessageRate,  ///< million messages a second
    kLatency,      ///< half a round trip, µs
    kCpu,          ///< CPU seconds of both processes per GiB
    kPut,          ///< Gbit/s of one-sided puts, until a signal behind them has arrived
    kGet,          ///< Gbit/s of one-sided gets
    kPutSignal,    ///< half a round trip of a put with a signal, µs
    kGetTime,      ///< from iget to its completion, µs
    kSignalTime,   ///< from iputSignal without data to its completion, µs
  };
  std::string name;     ///< "bw-1M"
  std::string measure;  ///< "bandwidth of messages of 1 MiB, one comm"
  std::string unit;     ///< "Gbit/s"
  Kind kind = Kind::kBandwidth;
  std::uint64_t size = 0;
  std::uint32_t comms = 1;
  bool both_directions = false;
  std::uint32_t group = 1;        ///< messages of one receive
  std::uint32_t per_mille = 500;  ///< quantile of kLatency: 500 is the median
};

/// The default sizes of bandwidth and of latency rows.
std::vector<std::uint64_t> default_sizes();

/// The rows for these sizes, in the order in which they run. Latency and message rate are measured up to 64 KiB,
/// bandwidth from 4 KiB. Rows on many comms, both directions and CPU time use the size nearest to 1 MiB.
std::vector<NetRow> net_rows(const std::vector<std::uint64_t>& sizes);

/// The rows of bench rma: bandwidth from 4 KiB, latency up to 64 KiB.
std::vector<NetRow> rma_rows(const std::vector<std::uint64_t>& sizes);

/// "8", "64K", "1M".
std::string size_text(std::uint64_t bytes);
/// Reads "8,64K,1M": sizes in bytes, or with the suffix K, M or G (1024, …). Errors: std::runtime_error.
std::vector<std::uint64_t> parse_sizes(const std::string& text);

/// A plugin or program that is measured. Not thread-safe.
class NetSubject {
 public:
  virtual ~NetSubject() = default;
  virtual const std::string& name() const = 0;
  /// Measures a row for about `seconds`. Returns nothing for a row that this subject does not have. Errors:
  /// std::runtime_error with a text for the user.
  virtual std::optional<double> measure(const NetRow& row, double seconds) = 0;
};

/// A plugin in two ranks, at the endpoints of the test bed's first path. `bed` must outlive it. Errors of `measure`:
/// the errors of harness/control.
std::unique_ptr<NetSubject> plugin_subject(bed::TestBed& bed, const std::string& plugin, const control::Limits& limits);

/// A GIN or RMA plugin of version `api` in two ranks, at the endpoints of the test bed's first path. `bed` must outlive
/// it. Errors of `measure`: the errors of harness/control.
std::unique_ptr<NetSubject> one_sided_subject(bed::TestBed& bed, const std::string& plugin,
                                              plugin::InterfaceKind interface, int api, const control::Limits& limits);

/// ib_write_bw, ib_write_lat and, for one-sided rows, ib_read_bw, ib_read_lat and ib_atomic_lat between the first two
/// hosts: the performance of the NIC. `bed` must outlive it. Requires TestBed::has_fabric().
std::unique_ptr<NetSubject> perftest_subject(bed::TestBed& bed);

/// The figures of one subject in one row.
struct NetFigure {
  std::string subject;
  std::vector<double> rounds;
  std::optional<double> value;  ///< median of the rounds; nothing if the subject does not have the row
  std::optional<double> ratio;  ///< median of the rounds' ratios to the reference; nothing for the reference itself
};

struct NetResult {
  NetRow row;
  std::string reference;           ///< the first subject that has this row
  std::vector<NetFigure> figures;  ///< one for each subject
};

struct NetSettings {
  std::vector<NetRow> rows;
  double seconds = 1;  ///< approximate length of each measurement
  int rounds = 3;
  std::function<void(const NetResult&)> on_result = {};
  const std::atomic<bool>* stop = nullptr;  ///< ends the benchmark between measurements; may be null
};

/// Measures all rows. In each round, the subjects run one after the other. Errors: as NetSubject::measure,
/// preceded by the name of the subject and the row.
std::vector<NetResult> run_net_bench(const std::vector<std::unique_ptr<NetSubject>>& subjects,
                                     const NetSettings& settings);

/// Fills in values, ratios and the reference from the rounds.
void summarize(NetResult& result);

}  // namespace plugfest::bench
