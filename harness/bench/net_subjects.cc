// The subjects of bench net: a plugin, with comms between two ranks and the loops of harness/rank/workloads/measure.cc;
// and perftest.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/bench/bench_hosts.h"
#include "harness/bench/net_bench.h"
#include "harness/control/workload.h"
#include "harness/report/text.h"

namespace plugfest::bench {
namespace {

constexpr double kNanoseconds = 1e-9;
constexpr double kGiB = 1024.0 * 1024 * 1024;
// A measurement counts if it takes at least this fraction of the requested time.
constexpr double kShortest = 0.4;

class PluginSubject final : public NetSubject {
 public:
  PluginSubject(bed::TestBed& bed, const std::string& plugin, const control::Limits& limits)
      : session_(bed.launcher(), bed.subject(plugin, 0), limits),
        lease_(session_.lease()),
        near_(lease_.endpoint(bed.paths().front().near)),
        far_(lease_.endpoint(bed.paths().front().far)) {
    const control::LibraryFacts& library = near_.rank.library();
    name_ = library.built_in ? plugin : report::printable(library.name);
  }

  const std::string& name() const override { return name_; }

  std::optional<double> measure(const NetRow& row, double seconds) override {
    const control::Properties properties = near_.rank.properties(near_.device);
    if (row.group > static_cast<std::uint32_t>(std::max(properties.max_recvs, 1))) return std::nullopt;
    connect(row.both_directions || row.kind == NetRow::Kind::kLatency, row.comms);
    return row.kind == NetRow::Kind::kLatency ? latency(row, seconds) : throughput(row, seconds);
  }

 private:
  struct Measured {
    double seconds = 0;
    double cpu_seconds = 0;
  };

  void connect(bool both_directions, std::size_t comms) {
    while (forward_.size() < comms) forward_.push_back(control::connect(near_, far_));
    while (both_directions && backward_.size() < comms) backward_.push_back(control::connect(far_, near_));
  }

  double throughput(const NetRow& row, double seconds) {
    control::ThroughputPlan plan{.size = row.size, .group = row.group, .count = std::uint64_t{16} * row.group};
    Measured measured = run(row, plan);
    while (measured.seconds < kShortest * seconds) {
      const double factor = std::clamp(seconds / std::max(measured.seconds, 1e-6), 2.0, 64.0);
      plan.count = static_cast<std::uint64_t>(static_cast<double>(plan.count) * factor) / row.group * row.group;
      measured = run(row, plan);
    }
    const double messages = static_cast<double>(plan.count) * row.comms * (row.both_directions ? 2 : 1);
    const double bytes = messages * static_cast<double>(row.size);
    switch (row.kind) {
      case NetRow::Kind::kMessageRate:
        return messages / measured.seconds / 1e6;
      case NetRow::Kind::kCpu:
        return measured.cpu_seconds / (bytes / kGiB);
      default:
        return bytes * 8 / measured.seconds / 1e9;
    }
  }

  Measured run(const NetRow& row, const control::ThroughputPlan& plan) {
    std::vector<control::SendComm> near_sends, far_sends;
    std::vector<control::RecvComm> near_receives, far_receives;
    for (std::size_t i = 0; i < row.comms; ++i) {
      near_sends.push_back(forward_[i].send);
      far_receives.push_back(forward_[i].receive);
      if (!row.both_directions) continue;
      far_sends.push_back(backward_[i].send);
      near_receives.push_back(backward_[i].receive);
    }
    const std::int64_t cpu_before = cpu_ns();
    auto at_far = control::start_throughput(far_.rank, far_sends, far_receives, plan);
    auto at_near = control::start_throughput(near_.rank, near_sends, near_receives, plan);
    const control::MeasuredOutcome far = at_far.get();
    const control::MeasuredOutcome near = at_near.get();
    control::require_clean(far);
    control::require_clean(near);
    return {
        static_cast<double>(std::max(far.end_ns, near.end_ns) - std::max(far.start_ns, near.start_ns)) * kNanoseconds,
        static_cast<double>(cpu_ns() - cpu_before) * kNanoseconds};
  }

  double latency(const NetRow& row, double seconds) {
    control::RoundTripPlan plan{.size = row.size, .count = 200, .per_mille = {row.per_mille}};
    while (true) {
      auto at_far = control::start_round_trips(far_.rank, backward_[0].send, forward_[0].receive, false, plan);
      auto at_near = control::start_round_trips(near_.rank, forward_[0].send, backward_[0].receive, true, plan);
      const control::RoundTripOutcome far = at_far.get();
      const control::RoundTripOutcome near = at_near.get();
      control::require_clean(near);
      control::require_clean(far);
      const double took = static_cast<double>(near.end_ns - near.start_ns) * kNanoseconds;
      if (took >= kShortest * seconds) return near.half_trip_ns.at(0) / 1e3;
      plan.count = static_cast<std::uint64_t>(static_cast<double>(plan.count) *
                                              std::clamp(seconds / std::max(took, 1e-6), 2.0, 64.0));
    }
  }

  std::int64_t cpu_ns() { return near_.rank.process().cpu_ns + far_.rank.process().cpu_ns; }

  std::string name_;
  control::Session session_;
  control::Lease lease_;
  control::Endpoint near_;
  control::Endpoint far_;
  // Connections from near to far, and back.
  std::vector<control::Connection> forward_;
  std::vector<control::Connection> backward_;
};

constexpr double kIterationsPerSecond = 5000;  // iterations of a latency test; an idle machine is faster

class PerftestSubject final : public NetSubject {
 public:
  explicit PerftestSubject(bed::TestBed& bed) : hosts_(bed.fabric()) {
    require_programs({"ib_write_bw", "ib_write_lat"});
  }

  const std::string& name() const override { return name_; }

  std::optional<double> measure(const NetRow& row, double seconds) override {
    if (row.kind == NetRow::Kind::kLatency) {
      if (row.per_mille != 500) return std::nullopt;
      const int iterations = std::max(100, static_cast<int>(kIterationsPerSecond * seconds));
      const Words argv = words("ib_write_lat -d roce_eth0 -F -s {} -n {}", row.size, iterations);
      return read_latency(argv[0], hosts_.perftest(argv)).median_us;
    }
    if (row.kind == NetRow::Kind::kCpu || row.group > 1) return std::nullopt;
    const int whole_seconds = std::max(1, static_cast<int>(std::lround(seconds)));
    Words argv =
        words("ib_write_bw -d roce_eth0 -F --report_gbits -s {} -q {} -D {} -f 0", row.size, row.comms, whole_seconds);
    if (row.both_directions) argv.push_back("-b");
    const Bandwidth bandwidth = read_bandwidth(argv[0], hosts_.perftest(argv));
    return row.kind == NetRow::Kind::kMessageRate ? bandwidth.million_messages_per_second : bandwidth.gbits_per_second;
  }

 private:
  std::string name_ = kPerftest;
  BenchHosts hosts_;
};

}  // namespace

std::unique_ptr<NetSubject> plugin_subject(bed::TestBed& bed, const std::string& plugin,
                                           const control::Limits& limits) {
  return std::make_unique<PluginSubject>(bed, plugin, limits);
}

std::unique_ptr<NetSubject> perftest_subject(bed::TestBed& bed) { return std::make_unique<PerftestSubject>(bed); }

}  // namespace plugfest::bench
