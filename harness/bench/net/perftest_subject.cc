// perftest as a subject.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/bench/bench_hosts.h"
#include "harness/bench/net/subject.h"
#include "harness/bench/perftest.h"

namespace plugfest::bench {
namespace {

constexpr double kIterationsPerSecond = 5000;  // of a latency test; an idle machine makes more

class PerftestSubject final : public NetSubject {
 public:
  explicit PerftestSubject(bed::TestBed& bed) : hosts_(bed.fabric()) {
    require_programs({"ib_write_bw", "ib_write_lat"});
  }

  const std::string& name() const override { return name_; }

  std::optional<double> measure(const NetRow& row, double seconds) override {
    const std::string size = fmt::to_string(row.size);
    if (row.kind == NetRow::Kind::kLatency) {
      if (row.per_mille != 500) return std::nullopt;
      const int iterations = std::max(100, static_cast<int>(kIterationsPerSecond * seconds));
      const Words argv = {"ib_write_lat", "-d", "roce_eth0", "-F", "-s", size, "-n", fmt::to_string(iterations)};
      return read_latency(argv[0], hosts_.perftest(argv)).median_us;
    }
    if (row.kind == NetRow::Kind::kCpu || row.group > 1) return std::nullopt;
    const int whole_seconds = std::max(1, static_cast<int>(std::lround(seconds)));
    Words argv = {"ib_write_bw",
                  "-d",
                  "roce_eth0",
                  "-F",
                  "--report_gbits",
                  "-s",
                  size,
                  "-q",
                  fmt::to_string(row.comms),
                  "-D",
                  fmt::to_string(whole_seconds),
                  "-f",
                  "0"};
    if (row.both_directions) argv.push_back("-b");
    const Bandwidth bandwidth = read_bandwidth(argv[0], hosts_.perftest(argv));
    return row.kind == NetRow::Kind::kMessageRate ? bandwidth.million_messages_per_second : bandwidth.gbits_per_second;
  }

 private:
  std::string name_ = "perftest";
  BenchHosts hosts_;
};

}  // namespace

std::unique_ptr<NetSubject> perftest_subject(bed::TestBed& bed) { return std::make_unique<PerftestSubject>(bed); }

}  // namespace plugfest::bench
