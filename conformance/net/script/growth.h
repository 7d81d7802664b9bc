// What the processes of ranks gain when the same work is repeated.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/rank.h"

namespace plugfest::conformance {

/// Work that leaves nothing behind in a correct plugin.
struct RepeatedWork {
  /// Calls of `work` before the first measurement, which fill caches.
  int warm_up = 1;
  /// Calls of `work` in each of three batches.
  int calls = 1;
  /// Units of work in each call, and their name in the plural: 16384 "messages".
  int units = 1;
  std::string_view name;
  /// Smallest growth of resident memory that counts as a leak, in bytes for each unit. Must be above the noise.
  double least_bytes = 0;
  std::function<void()> work;
};

/// Does the work and measures both processes after each batch. Returns a text for each resource that grew in every
/// batch: "rank a.eth0: 2 to 3 file descriptors more after each 100 connections". Caches and pools that grow once, or
/// up to a limit, are no leak. Descriptors may close and threads may end within a tenth of `limit`. Errors: those of
/// `work`.
std::vector<std::string> growth(std::vector<control::Rank> ranks, const control::StallLimit& limit,
                                const RepeatedWork& repeated);

}  // namespace plugfest::conformance
