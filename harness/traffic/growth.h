// Measures how the processes of ranks grow when the same work is repeated.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/rank.h"

namespace plugfest::traffic {

enum class Resource { kMemory, kDescriptors, kThreads };
constexpr std::array kResources = {Resource::kMemory, Resource::kDescriptors, Resource::kThreads};
/// "bytes of resident memory", "descriptors", "threads".
std::string_view name_of(Resource resource);
/// For JSON: "resident_bytes", "descriptors", "threads".
std::string_view key_of(Resource resource);

/// The growth of a resource in each of several equal batches of work.
class Steps {
 public:
  void add(std::int64_t step) { steps_.push_back(step); }
  std::int64_t least() const;
  std::int64_t most() const;
  double mean() const;
  /// The standard error of the mean; 0 for fewer than two batches.
  double error() const;

 private:
  std::vector<std::int64_t> steps_;
};

/// Measures the processes of ranks after each batch of work. One thread.
class GrowthMeter {
 public:
  /// Measures for the first time. `kinds`: number of kinds of work. `limit`: descriptors may close and threads may end
  /// within a tenth of it. Errors: as Rank::process.
  GrowthMeter(std::vector<control::Rank> ranks, std::size_t kinds, const control::StallLimit& limit);

  /// Measures, and counts the growth since the last measurement as caused by one batch of work of this kind.
  void finish_batch(std::size_t kind);

  std::size_t ranks() const { return ranks_.size(); }
  const std::string& name(std::size_t rank) const { return ranks_[rank].name(); }
  const Steps& steps(std::size_t rank, Resource resource, std::size_t kind) const {
    return steps_[rank][static_cast<std::size_t>(resource)][kind];
  }
  std::int64_t now(std::size_t rank, Resource resource) const {
    return last_[rank][static_cast<std::size_t>(resource)];
  }

 private:
  using Values = std::array<std::int64_t, kResources.size()>;
  Values measure(std::size_t rank, const Values& before);

  std::vector<control::Rank> ranks_;
  control::StallLimit limit_;
  std::vector<Values> last_;
  std::vector<std::array<std::vector<Steps>, kResources.size()>> steps_;
};

/// Work that leaves nothing behind in a correct plugin.
struct RepeatedWork {
  /// Calls of `work` before the first measurement, which fill caches.
  int warm_up = 1;
  /// Calls of `work` in each batch.
  int calls = 1;
  /// Units of work in each call, and their name in the plural: 16384 "messages".
  int units = 1;
  std::string_view name;
  /// Smallest growth of resident memory that counts as a leak, in bytes for each unit. Must be above the noise.
  double least_bytes = 0;
  std::function<void()> work;
};

/// Does the work in three batches, or six if only memory grew in each of the first three, and measures the processes
/// after each batch. Returns a text for each resource that grew in every batch: "rank a.eth0: 2 to 3 descriptors more
/// after each 100 connections". Caches and pools that grow once, or up to a limit, are not leaks. `limit`: see
/// GrowthMeter. Errors: whatever `work` throws.
std::vector<std::string> growth(std::vector<control::Rank> ranks, const control::StallLimit& limit,
                                const RepeatedWork& repeated);

}  // namespace plugfest::traffic
