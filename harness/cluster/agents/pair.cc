#include "harness/cluster/agents/pair.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "fabric/system/clock.h"
#include "harness/control/call.h"
#include "harness/control/script.h"
#include "harness/control/workload.h"
#include "harness/traffic/soak.h"

namespace plugfest::cluster {
namespace {

constexpr std::uint64_t kVerified = 120;
constexpr std::uint64_t kLatencyBytes = 8;

// Uses the receiver's duration, since clocks of two hosts differ.
double bits_per_second(const control::Endpoint& from, const control::Endpoint& to,
                       const control::Connection& connection, const PairSettings& settings) {
  control::ThroughputPlan plan{.size = settings.message_bytes, .count = 2};
  for (;;) {
    auto receiving = control::start_throughput(to.rank, {}, {connection.receive}, plan);
    auto sending = control::start_throughput(from.rank, {connection.send}, {}, plan);
    const control::MeasuredOutcome received = receiving.get();
    const control::MeasuredOutcome sent = sending.get();
    control::require_clean(received);
    control::require_clean(sent);
    // The sender may be done before its messages have arrived.
    const double took = static_cast<double>(received.end_ns - received.start_ns) / 1e9;
    const auto more = longer(plan.count, took, settings.seconds);
    if (!more) return static_cast<double>(plan.count * plan.size) * 8 / took;
    plan.count = *more;
  }
}

void measure_latency(const control::Endpoint& one, const control::Endpoint& other, const control::Connection& forth,
                     const control::Connection& back, const PairSettings& settings, PairOutcome& outcome) {
  control::RoundTripPlan plan{.size = kLatencyBytes, .count = 100, .per_mille = {500, 990}};
  for (;;) {
    auto answering = control::start_round_trips(other.rank, back.send, forth.receive, false, plan);
    auto asking = control::start_round_trips(one.rank, forth.send, back.receive, true, plan);
    const control::RoundTripOutcome answered = answering.get();
    const control::RoundTripOutcome asked = asking.get();
    control::require_clean(asked);
    control::require_clean(answered);
    const double took = static_cast<double>(asked.end_ns - asked.start_ns) / 1e9;
    outcome.latency_p50_seconds = asked.half_trip_ns.at(0) / 1e9;
    outcome.latency_p99_seconds = asked.half_trip_ns.at(1) / 1e9;
    const auto more = longer(plan.count, took, settings.seconds);
    if (!more) return;
    plan.count = *more;
  }
}

// Calls work(near, far, outcome, limit) with the endpoints of a pair.
template <typename Work>
PairOutcome guarded(control::Session& session, const std::string& one, const std::string& other, const Work& work) {
  PairOutcome outcome;
  try {
    control::Lease lease = session.lease();
    const control::Endpoint near = lease.endpoint(one);
    const control::Endpoint far = lease.endpoint(other);
    work(near, far, outcome, lease.stall_limit());
    lease.release(true);
  } catch (const control::Interrupted&) {
    throw;
  } catch (const control::Deviation& deviation) {
    outcome.broken = deviation.what();
    outcome.plugin_failed = true;
  } catch (const std::exception& error) {
    outcome.broken = error.what();
  }
  return outcome;
}

}  // namespace

bool has_valid_figures(const PairReport& report) {
  const auto valid = [](double figure) { return std::isfinite(figure) && figure >= 0; };
  const PairOutcome& outcome = report.outcome;
  return valid(outcome.connect_seconds) && valid(outcome.forth_bits_per_second) &&
         valid(outcome.back_bits_per_second) && valid(outcome.latency_p50_seconds) &&
         valid(outcome.latency_p99_seconds) && valid(report.soak.seconds) &&
         std::all_of(report.soak.growth.begin(), report.soak.growth.end(),
                     [&](const auto& growth) { return std::isfinite(growth.mean) && valid(growth.standard_error); }) &&
         std::all_of(report.soak.series.begin(), report.soak.series.end(),
                     [&](const auto& sample) { return valid(sample.seconds); });
}

PairOutcome measure_pair(control::Session& session, const std::string& one, const std::string& other,
                         const PairSettings& settings) {
  return guarded(session, one, other, [&](const auto& near, const auto& far, PairOutcome& outcome, const auto&) {
    const Nanoseconds start = now_ns();
    const control::Connection forth = control::connect(near, far);
    outcome.connect_seconds = static_cast<double>(now_ns() - start) / 1e9;
    const control::Connection back = control::connect(far, near);
    const control::StreamPlan plan{.count = kVerified, .seed = settings.seed, .check_sizes = true};
    control::stream(forth.send, forth.receive, plan);
    control::stream(back.send, back.receive, plan);
    outcome.forth_bits_per_second = bits_per_second(near, far, forth, settings);
    outcome.back_bits_per_second = bits_per_second(far, near, back, settings);
    measure_latency(near, far, forth, back, settings, outcome);
  });
}

PairOutcome soak_pair(control::Session& session, const std::string& one, const std::string& other,
                      const PairSettings& settings, report::SoakRecord& record) {
  return guarded(session, one, other, [&](const auto& near, const auto& far, PairOutcome&, const auto& limit) {
    const auto go_on = [] { return true; };  // a stop of the agent ends the calls
    traffic::soak(near, far, limit, settings.seed, settings.soak_seconds, go_on, record);
  });
}

std::optional<std::uint64_t> longer(std::uint64_t count, double took, double wanted) {
  constexpr double kShortest = 0.4, kMaxStep = 32;
  if (took >= kShortest * wanted) return std::nullopt;
  const double by = std::clamp(wanted / std::max(took, 1e-6), 2.0, kMaxStep);
  return static_cast<std::uint64_t>(static_cast<double>(count) * by);
}

}  // namespace plugfest::cluster
