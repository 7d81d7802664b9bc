#include "conformance/net/script/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "conformance/net/script/process_state.h"

namespace plugfest::conformance {

namespace {

constexpr std::size_t kBatches = 3;

struct Series {
  std::array<std::int64_t, kBatches + 1> values{};

  // The smallest and the largest growth from one measurement to the next.
  std::pair<std::int64_t, std::int64_t> growth() const {
    std::array<std::int64_t, kBatches> steps{};
    for (std::size_t i = 0; i < kBatches; ++i) steps[i] = values[i + 1] - values[i];
    const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
    return {*least, *most};
  }
};

struct OfRank {
  control::Rank rank;
  Series descriptors, threads, bytes;

  void measure(std::size_t batch, const control::StallLimit& limit) {
    rank.free_attempts();
    const auto before = [&](const Series& series) { return batch == 0 ? INT64_MAX : series.values[batch - 1]; };
    const control::ProcessFacts facts = settled(rank, limit, [&](const control::ProcessFacts& now) {
      return now.file_descriptors <= before(descriptors) && now.threads <= before(threads);
    });
    descriptors.values[batch] = facts.file_descriptors;
    threads.values[batch] = facts.threads;
    bytes.values[batch] = static_cast<std::int64_t>(facts.resident_bytes);
  }
};

std::string range(std::pair<std::int64_t, std::int64_t> growth) {
  return growth.first == growth.second ? std::to_string(growth.first)
                                       : fmt::format("{} to {}", growth.first, growth.second);
}

}  // namespace

std::vector<std::string> growth(std::vector<control::Rank> ranks, const control::StallLimit& limit,
                                const RepeatedWork& repeated) {
  std::vector<OfRank> measured;
  for (control::Rank& rank : ranks) measured.push_back({std::move(rank), {}, {}, {}});
  for (int i = 0; i < repeated.warm_up; ++i) repeated.work();
  for (std::size_t batch = 0; batch <= kBatches; ++batch) {
    for (int i = 0; batch > 0 && i < repeated.calls; ++i) repeated.work();
    for (OfRank& each : measured) each.measure(batch, limit);
  }

  std::vector<std::string> leaks;
  const int units = repeated.calls * repeated.units;
  for (const OfRank& each : measured) {
    const auto report = [&](const std::string& what) {
      leaks.push_back(fmt::format("rank {}: {} more after each {} {}", each.rank.name(), what, units, repeated.name));
    };
    if (each.descriptors.growth().first > 0) report(range(each.descriptors.growth()) + " file descriptors");
    if (each.threads.growth().first > 0) report(range(each.threads.growth()) + " threads");
    const auto [least, most] = each.bytes.growth();
    if (static_cast<double>(least) >= repeated.least_bytes * units)
      report(fmt::format("{} KiB of resident memory", range({least / 1024, most / 1024})));
  }
  return leaks;
}

}  // namespace plugfest::conformance
