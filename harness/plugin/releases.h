// Which versions of each plugin interface every release of NCCL looks up.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/plugin/layout.h"

namespace plugfest::plugin {

/// A range of versions. 0, 0: none.
struct Versions {
  int oldest = 0;
  int newest = 0;
};

struct Release {
  /// "2.30.7".
  std::string_view name;
  /// By InterfaceKind. NCCL takes the newest of them that the library exports.
  std::array<Versions, kInterfaceKinds> looked_up;

  const Versions& of(InterfaceKind kind) const { return looked_up[static_cast<std::size_t>(kind)]; }
  /// The version that this release takes of those that a library exports; 0: none. `exported`: ascending.
  int choose(InterfaceKind kind, const std::vector<int>& exported) const;
};

/// All releases whose source was read, oldest first.
std::span<const Release> releases();

/// The release "nccl-2.30.7" or "2.30.7"; null for one that is not in releases().
const Release* find_release(std::string_view name);

/// Up to three names of releases(), those before and after `name`: "2.30.3, 2.30.4 and 2.30.7".
std::string nearest_releases(std::string_view name);

}  // namespace plugfest::plugin
