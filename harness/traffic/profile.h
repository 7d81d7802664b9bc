// The traffic profiles of `plugfest replay`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "harness/traffic/plan.h"
#include "harness/traffic/setup.h"

namespace plugfest::traffic {

struct Profile {
  std::string_view name;
  /// "rings, SIMPLE: messages of up to 1 MiB".
  std::string_view summary;
};

/// The ranks do not reach each other as a profile needs. `what()` says how.
class Unsuitable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// ring-ar, ring-ll, tree, p2p-a2a, pxn, mixed.
const std::vector<Profile>& profiles();

/// A plan with `operations` collectives, or rounds of sends and receives, of random sizes. `name`: of a profile.
/// Errors: Unsuitable.
Plan make_plan(std::string_view name, const Team& team, std::size_t operations, std::uint64_t seed);

}  // namespace plugfest::traffic
