// The subjects of bench net and rma: a plugin in two ranks, with the loops of harness/rank/workloads/measure.cc and
// one_sided.cc; and perftest.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/bench/bench_hosts.h"
#include "harness/bench/net_bench.h"
#include "harness/control/one_sided.h"
#include "harness/control/workload.h"
#include "harness/plugin/layout.h"
#include "harness/report/text.h"

namespace plugfest::bench {
namespace {

constexpr double kNanoseconds = 1e-9;
constexpr double kGiB = 1024.0 * 1024 * 1024;

// Calls `measure(count)`, which returns the seconds that it took, with larger counts, multiples of `count`, until a
// measurement takes a large part of `seconds`.
template <typename Measure>
void measure_for(double seconds, std::uint64_t count, const Measure& measure) {
  constexpr double kMinPart = 0.4;
  for (const std::uint64_t unit = count;;) {
    const double took = measure(count);
    if (took >= kMinPart * seconds) return;
    const double factor = std::clamp(seconds / std::max(took, 1e-6), 2.0, 64.0);
    count = static_cast<std::uint64_t>(static_cast<double>(count) * factor) / unit * unit;
  }
}

std::string name_of(const control::LibraryFacts& library, const std::string& plugin) {
  return library.built_in ? plugin : report::printable(library.name);
}

class PluginSubject final : public NetSubject {
 public:
  PluginSubject(bed::TestBed& bed, const std::string& plugin, const control::Limits& limits)
      : session_(bed.launcher(), bed.subject(plugin, 0), limits),
        lease_(session_.lease()),
        near_(lease_.endpoint(bed.paths().front().near)),
        far_(lease_.endpoint(bed.paths().front().far)) {
    name_ = name_of(near_.rank.library(), plugin);
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
    Measured measured;
    control::ThroughputPlan plan{.size = row.size, .group = row.group};
    measure_for(seconds, std::uint64_t{16} * row.group, [&](std::uint64_t count) {
      plan.count = count;
      measured = run(row, plan);
      return measured.seconds;
    });
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
    control::RoundTripPlan plan{.size = row.size, .per_mille = {row.per_mille}};
    double median_us = 0;
    measure_for(seconds, 200, [&](std::uint64_t count) {
      plan.count = count;
      auto at_far = control::start_round_trips(far_.rank, backward_[0].send, forward_[0].receive, false, plan);
      auto at_near = control::start_round_trips(near_.rank, forward_[0].send, backward_[0].receive, true, plan);
      const control::RoundTripOutcome far = at_far.get();
      const control::RoundTripOutcome near = at_near.get();
      control::require_clean(near);
      control::require_clean(far);
      median_us = near.half_trip_ns.at(0) / 1e3;
      return static_cast<double>(near.end_ns - near.start_ns) * kNanoseconds;
    });
    return median_us;
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

// The first rank puts to and gets from the second one.
class OneSidedSubject final : public NetSubject {
 public:
  OneSidedSubject(bed::TestBed& bed, const std::string& plugin, plugin::InterfaceKind interface, int api,
                  const control::Limits& limits)
      : session_(bed.launcher(), bed.subject(plugin, api, interface), limits),
        lease_(session_.lease()),
        group_({lease_.rank(bed.paths().front().near), lease_.rank(bed.paths().front().far)}) {
    name_ = fmt::format("{} {} v{}", name_of(group_[0].rank().library(), plugin), plugin::interface_of(interface).title,
                        group_[0].rank().api());
  }

  const std::string& name() const override { return name_; }

  std::optional<double> measure(const NetRow& row, double seconds) override {
    const bool gets = row.kind == NetRow::Kind::kGet || row.kind == NetRow::Kind::kGetTime;
    if (gets && !group_[0].rank().has_function("iget")) return std::nullopt;
    // The plugins put into the same memory again, as perftest does.
    const control::Window data = group_.window(row.size);
    const double figure = measure(row, gets, data, seconds);
    group_.dereg(data.mhandles);
    return figure;
  }

 private:
  double measure(const NetRow& row, bool gets, const control::Window& data, double seconds) {
    const bool bandwidth = row.kind == NetRow::Kind::kPut || row.kind == NetRow::Kind::kGet;
    const control::CallArguments put = control::put_arguments({data}, {data}, row.size, 0, 1);
    double figure = 0;
    measure_for(seconds, bandwidth ? 16 : 200, [&](std::uint64_t count) {
      const control::Window signals = group_.window(sizeof(std::uint64_t), abi::kForceStrictOrder);
      const auto signal = [&](std::size_t from) {
        return control::signal_arguments({signals}, from, 1 - from, abi::kSignalInc, 1);
      };
      control::OneSidedLoop near{.function = "iputSignal", .arguments = signal(0), .count = count};
      // The second rank waits for a signal, so that it makes progress as long as the first one does.
      control::OneSidedLoop far{.count = row.kind == NetRow::Kind::kSignalTime ? count : 1,
                                .signal = signals.memory[1]};
      if (row.kind == NetRow::Kind::kPutSignal) {
        near.arguments = with(put, signal(0));
        near.signal = signals.memory[0];
        near.starts = true;
        far = {.function = "iputSignal",
               .arguments = with(control::put_arguments({data}, {data}, row.size, 1, 0), signal(1)),
               .count = count,
               .signal = signals.memory[1]};
      } else if (row.kind != NetRow::Kind::kSignalTime) {
        near.function = gets ? "iget" : "iput";
        near.arguments = gets ? control::get_arguments({data}, {data}, row.size, 0, 1) : put;
        near.last = signal(0);
        if (bandwidth) near.window = kWindow;
      }
      auto at_far = control::start_loop(group_[1], far);
      auto at_near = control::start_loop(group_[0], near);
      const control::OneSidedLoopOutcome far_outcome = at_far.get();
      const control::OneSidedLoopOutcome outcome = control::get_with_progress(at_near, {&group_[1]});
      control::require_clean(outcome);
      control::require_clean(far_outcome);
      group_.dereg(signals.mhandles);
      const double took = static_cast<double>(outcome.end_ns - outcome.start_ns) * kNanoseconds;
      figure = bandwidth ? static_cast<double>(count * row.size) * 8 / took / 1e9 : outcome.median_ns / 1e3;
      return took;
    });
    return figure;
  }

  static constexpr std::uint32_t kWindow = 32;

  std::string name_;
  control::Session session_;
  control::Lease lease_;
  control::OneSidedGroup group_;
};

constexpr double kIterationsPerSecond = 5000;  // iterations of a latency test; an idle machine is faster

class PerftestSubject final : public NetSubject {
 public:
  explicit PerftestSubject(bed::TestBed& bed) : hosts_(bed.fabric()) {
    require_programs({"ib_write_bw", "ib_write_lat"});
  }

  const std::string& name() const override { return name_; }

  std::optional<double> measure(const NetRow& row, double seconds) override {
    switch (row.kind) {
      case NetRow::Kind::kCpu:
        return std::nullopt;
      case NetRow::Kind::kLatency:
      case NetRow::Kind::kPutSignal:
        if (row.per_mille != 500) return std::nullopt;
        return latency("ib_write_lat", row, seconds);
      case NetRow::Kind::kGetTime:  // perftest prints the whole time for reads and atomics
        return latency("ib_read_lat", row, seconds);
      case NetRow::Kind::kSignalTime:
        return latency("ib_atomic_lat", row, seconds);
      case NetRow::Kind::kGet:
        return bandwidth("ib_read_bw", row, seconds).gbits_per_second;
      case NetRow::Kind::kMessageRate:
        if (row.group > 1) return std::nullopt;
        return bandwidth("ib_write_bw", row, seconds).million_messages_per_second;
      default:
        return bandwidth("ib_write_bw", row, seconds).gbits_per_second;
    }
  }

 private:
  double latency(const char* program, const NetRow& row, double seconds) {
    const int iterations = std::max(100, static_cast<int>(kIterationsPerSecond * seconds));
    Words argv = words("{} -d roce_eth0 -F -n {}", program, iterations);
    if (row.kind != NetRow::Kind::kSignalTime) argv.insert(argv.end(), {"-s", fmt::to_string(row.size)});
    return read_latency(argv[0], hosts_.perftest(argv)).median_us;
  }
  Bandwidth bandwidth(const char* program, const NetRow& row, double seconds) {
    const int whole_seconds = std::max(1, static_cast<int>(std::lround(seconds)));
    Words argv =
        words("{} -d roce_eth0 -F --report_gbits -s {} -q {} -D {} -f 0", program, row.size, row.comms, whole_seconds);
    if (row.both_directions) argv.push_back("-b");
    return read_bandwidth(argv[0], hosts_.perftest(argv));
  }

  std::string name_ = kPerftest;
  BenchHosts hosts_;
};

}  // namespace

std::unique_ptr<NetSubject> plugin_subject(bed::TestBed& bed, const std::string& plugin,
                                           const control::Limits& limits) {
  return std::make_unique<PluginSubject>(bed, plugin, limits);
}

std::unique_ptr<NetSubject> one_sided_subject(bed::TestBed& bed, const std::string& plugin,
                                              plugin::InterfaceKind interface, int api, const control::Limits& limits) {
  return std::make_unique<OneSidedSubject>(bed, plugin, interface, api, limits);
}

std::unique_ptr<NetSubject> perftest_subject(bed::TestBed& bed) { return std::make_unique<PerftestSubject>(bed); }

}  // namespace plugfest::bench
