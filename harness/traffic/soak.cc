#include "harness/traffic/soak.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "harness/control/workload.h"

namespace plugfest::traffic {

namespace {

constexpr int kMessageCount = 4096, kConnectionCount = 25, kRegistrationCount = 64;

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
    : sender_(sender),
      receiver_(receiver),
      seed_(seed),
      connection_(control::connect(sender_, receiver_)),
      memory_(sender_.rank.allocate(1 << 20)),
      meter_((round([](std::size_t) {}), GrowthMeter({sender_.rank, receiver_.rank}, work().size(), limit))) {}

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
  for (int i = 0; i < kRegistrationCount; ++i) {
    control::Registration registration = connection_.send.reg(memory_.sub(0, memory_.size() / (1 + i % 8)));
    registration.dereg();
  }
}

void Soak::round(const std::function<void(std::size_t)>& after_part) {
  constexpr std::array kParts = {&Soak::do_messages, &Soak::do_connections, &Soak::do_registrations};
  for (std::size_t kind = 0; kind < kParts.size(); ++kind) {
    (this->*kParts[kind])();
    after_part(kind);
  }
}

void Soak::round() {
  round([&](std::size_t kind) { meter_.finish_batch(kind); });
  ++rounds_;
}

std::string growth_text(const Steps& steps, const SoakWork& work) {
  return fmt::format("{} ± {}", digits(steps.mean() / work.units), digits(steps.error() / work.units));
}

std::vector<std::string> Soak::leaks() const {
  constexpr double kErrors = 3;
  std::vector<std::string> leaks;
  for (std::size_t rank = 0; rank < meter_.ranks(); ++rank) {
    for (const Resource resource : kResources) {
      for (std::size_t kind = 0; kind < work().size(); ++kind) {
        const SoakWork& done = work()[kind];
        const Steps& steps = meter_.steps(rank, resource, kind);
        const double least = resource == Resource::kMemory ? done.least_bytes * done.units : 0;
        if (steps.mean() - kErrors * steps.error() <= least) continue;
        leaks.push_back(fmt::format("rank {}: {} {} more after each {}", meter_.name(rank), growth_text(steps, done),
                                    name_of(resource), done.unit));
      }
    }
  }
  return leaks;
}

}  // namespace plugfest::traffic
