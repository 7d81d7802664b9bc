#include "harness/traffic/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "harness/control/script.h"

namespace plugfest::traffic {

std::string_view name_of(Resource resource) {
  constexpr std::array<std::string_view, kResources.size()> kNames = {"bytes of resident memory", "descriptors",
                                                                      "threads"};
  return kNames[static_cast<std::size_t>(resource)];
}

std::string_view key_of(Resource resource) {
  return resource == Resource::kMemory ? "resident_bytes" : name_of(resource);
}

std::int64_t Steps::least() const { return steps_.empty() ? 0 : *std::min_element(steps_.begin(), steps_.end()); }

std::int64_t Steps::most() const { return steps_.empty() ? 0 : *std::max_element(steps_.begin(), steps_.end()); }

double Steps::mean() const {
  if (steps_.empty()) return 0;
  return std::accumulate(steps_.begin(), steps_.end(), 0.0) / static_cast<double>(steps_.size());
}

double Steps::error() const {
  const auto count = static_cast<double>(steps_.size());
  if (count < 2) return 0;
  const double squares = std::accumulate(steps_.begin(), steps_.end(), 0.0, [mean = mean()](double sum, auto step) {
    return sum + std::pow(static_cast<double>(step) - mean, 2);
  });
  return std::sqrt(squares / (count - 1) / count);
}

GrowthMeter::GrowthMeter(std::vector<control::Rank> ranks, std::size_t kinds, const control::StallLimit& limit)
    : ranks_(std::move(ranks)), limit_(limit) {
  constexpr Values kAny = {INT64_MAX, INT64_MAX, INT64_MAX};
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    last_.push_back(measure(rank, kAny));
    steps_.emplace_back().fill(std::vector<Steps>(kinds));
  }
}

GrowthMeter::Values GrowthMeter::measure(std::size_t rank, const Values& before) {
  ranks_[rank].free_attempts();
  const control::ProcessFacts facts = settled(ranks_[rank], limit_, [&](const control::ProcessFacts& now) {
    return now.file_descriptors <= before[1] && now.threads <= before[2];
  });
  return {static_cast<std::int64_t>(facts.resident_bytes), facts.file_descriptors, facts.threads};
}

void GrowthMeter::finish_batch(std::size_t kind) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Values now = measure(rank, last_[rank]);
    for (std::size_t i = 0; i < now.size(); ++i) steps_[rank][i][kind].add(now[i] - last_[rank][i]);
    last_[rank] = now;
  }
}

namespace {

constexpr std::array kAwaited = {Resource::kDescriptors, Resource::kThreads};  // by GrowthMeter::measure

// A text for each of the resources that has grown in every batch.
std::vector<std::string> leaks_of(const GrowthMeter& meter, const RepeatedWork& repeated,
                                  std::span<const Resource> resources) {
  std::vector<std::string> leaks;
  const int units = repeated.calls * repeated.units;
  for (std::size_t rank = 0; rank < meter.ranks(); ++rank) {
    for (const Resource resource : resources) {
      const Steps& steps = meter.steps(rank, resource, 0);
      const double least = resource == Resource::kMemory ? repeated.least_bytes * units : 1;
      if (static_cast<double>(steps.least()) < least) continue;
      const std::string range = steps.least() == steps.most() ? std::to_string(steps.least())
                                                              : fmt::format("{} to {}", steps.least(), steps.most());
      leaks.push_back(fmt::format("rank {}: {} {} more after each {} {}", meter.name(rank), range, name_of(resource),
                                  units, repeated.name));
    }
  }
  return leaks;
}

}  // namespace

std::vector<std::string> growth(std::vector<control::Rank> ranks, const control::StallLimit& limit,
                                const RepeatedWork& repeated) {
  constexpr int kBatches = 3;
  for (int i = 0; i < repeated.warm_up; ++i) repeated.work();
  GrowthMeter meter(std::move(ranks), 1, limit);
  std::vector<std::string> leaks;
  // Memory that a thread of the plugin releases later grows in a few batches too, so its leak has to show twice.
  for (int series = 0; series < 2; ++series) {
    for (int batch = 0; batch < kBatches; ++batch) {
      for (int i = 0; i < repeated.calls; ++i) repeated.work();
      meter.finish_batch(0);
    }
    leaks = leaks_of(meter, repeated, kResources);
    if (leaks.empty() || !leaks_of(meter, repeated, kAwaited).empty()) break;
  }
  return leaks;
}

}  // namespace plugfest::traffic
