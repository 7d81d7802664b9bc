// Random schedules, and smaller ones of a schedule that fails (RapidCheck).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/model/schedule.h"

namespace plugfest::model {

/// What schedules are made for.
struct Shape {
  std::string topology;
  std::vector<std::string> ranks;
  /// The least maxRecvs of the ranks' devices.
  unsigned max_receives = 1;
  /// Whether faults of packets can be injected.
  bool faults = false;
};

/// A valid schedule that depends on `shape` and `seed` only.
Schedule random_schedule(const Shape& shape, std::uint64_t seed);

/// Returns a schedule that `fails`, of which no part can be left out or made smaller without `fails` being false.
/// `schedule`: one that fails.
Schedule shrink(Schedule schedule, const std::function<bool(const Schedule&)>& fails);

}  // namespace plugfest::model
