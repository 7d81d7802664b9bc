#include "harness/traffic/soak.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "fabric/system/clock.h"
#include "harness/control/workload.h"

namespace plugfest::traffic {

namespace {

constexpr int kMessageCount = 4096, kConnectionCount = 25, kRegistrationCount = 2048;

// "2124", "80.2", "0.013", "0".
std::string digits(double value) {
  return std::abs(value) < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

const std::vector<SoakWork>& Soak::work() {
  static const std::vector<SoakWork> kWork = {{.unit = "message", .units = kMessageCount, .least_bytes = 8},
                                              {.unit = "connection", .units = kConnectionCount, .least_bytes = 256},
                                              {.unit = "registration", .units = kRegistrationCount, .least_bytes = 16}};
  return kWork;
}

Soak::Soak(const control::Endpoint& sender, const control::Endpoint& receiver, const control::StallLimit& limit,
           std::uint64_t seed)
    : sender_(sender), receiver_(receiver), seed_(seed), connection_(control::connect(sender_, receiver_)) {
  round([](std::size_t) {});
  meter_.emplace(std::vector{sender_.rank, receiver_.rank}, work().size(), limit);
}

void Soak::do_messages() {
  control::stream(connection_.send, connection_.receive,
                  {.count = kMessageCount,
                   .seed = ++seed_,
                   .sizes = {8, 64, 1000, 4096, 65536},
                   .window = 16,
                   .check_every = 4,
                   .check_sizes = true});
}

void Soak::do_connections() {
  for (int i = 0; i < kConnectionCount; ++i) {
    control::Connection other = control::connect(sender_, receiver_);
    control::stream(other.send, other.receive, {.count = 2, .seed = ++seed_});
    other.send.close();
    other.receive.close();
  }
}

void Soak::do_registrations() {
  control::stream(connection_.send, connection_.receive,
                  {.count = 1, .seed = ++seed_, .registrations = kRegistrationCount});
}

void Soak::round(const std::function<void(std::size_t)>& after_part) {
  constexpr std::array kParts = {&Soak::do_messages, &Soak::do_connections, &Soak::do_registrations};
  for (std::size_t kind = 0; kind < kParts.size(); ++kind) {
    (this->*kParts[kind])();
    after_part(kind);
  }
}

void Soak::round() {
  round([&](std::size_t kind) { meter_->finish_batch(kind); });
  ++rounds_;
}

std::uint64_t Soak::messages() const { return rounds_ * kMessageCount; }

std::string growth_text(double mean, double standard_error) {
  return fmt::format("{} ± {}", digits(mean), digits(standard_error));
}

void Soak::for_each_growth(
    const std::function<void(const std::string& rank, Resource, const SoakWork&, const Steps&)>& use) const {
  for (std::size_t rank = 0; rank < meter().ranks(); ++rank)
    for (const Resource resource : kResources)
      for (std::size_t kind = 0; kind < work().size(); ++kind)
        use(meter().name(rank), resource, work()[kind], meter().steps(rank, resource, kind));
}

std::vector<report::SoakRecord::Growth> Soak::growth() const {
  std::vector<report::SoakRecord::Growth> growth;
  for_each_growth([&](const std::string& rank, Resource resource, const SoakWork& done, const Steps& steps) {
    growth.push_back({rank, std::string(key_of(resource)), std::string(done.unit), steps.mean() / done.units,
                      steps.error() / done.units});
  });
  return growth;
}

std::vector<std::string> Soak::leaks() const {
  constexpr double kErrors = 3;
  std::vector<std::string> leaks;
  for_each_growth([&](const std::string& rank, Resource resource, const SoakWork& done, const Steps& steps) {
    const double least = resource == Resource::kMemory ? done.least_bytes * done.units : 0;
    if (steps.mean() - kErrors * steps.error() <= least) return;
    leaks.push_back(fmt::format("rank {}: {} {} more after each {}", rank,
                                growth_text(steps.mean() / done.units, steps.error() / done.units), name_of(resource),
                                done.unit));
  });
  return leaks;
}

void soak(const control::Endpoint& sender, const control::Endpoint& receiver, const control::StallLimit& limit,
          std::uint64_t seed, double seconds, const std::function<bool()>& go_on, report::SoakRecord& record) {
  // Fewer rounds have no standard error that means something.
  constexpr std::uint64_t kMinRounds = 5;
  constexpr std::size_t kMaxSamples = 1000;
  const Stopwatch watch;
  Soak soak(sender, receiver, limit, seed);
  std::uint64_t rounds_of_sample = 1;
  do {
    soak.round();
    record.rounds = soak.rounds();
    record.seconds = watch.seconds();
    if (record.rounds % rounds_of_sample != 0) continue;
    report::SoakRecord::Sample& sample = record.series.emplace_back(
        report::SoakRecord::Sample{.seconds = record.seconds, .messages = soak.messages(), .ranks = {}});
    for (std::size_t rank = 0; rank < soak.meter().ranks(); ++rank) {
      const auto now = [&](Resource resource) { return soak.meter().now(rank, resource); };
      sample.ranks.push_back(
          {soak.meter().name(rank), now(Resource::kMemory), now(Resource::kDescriptors), now(Resource::kThreads)});
    }
    if (record.series.size() < kMaxSamples) continue;
    for (std::size_t i = 0; i < kMaxSamples / 2; ++i) record.series[i] = std::move(record.series[2 * i + 1]);
    record.series.resize(kMaxSamples / 2);
    rounds_of_sample *= 2;
  } while (go_on() && (record.rounds < kMinRounds || record.seconds < seconds));
  record.leaks = soak.leaks();
  record.growth = soak.growth();
}

}  // namespace plugfest::traffic
