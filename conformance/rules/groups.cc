#include "conformance/rules/groups.h"

#include <array>

namespace plugfest::conformance {
namespace {

// From loading to a dead peer. Each is fast also on an emulated processor.
constexpr std::array<std::string_view, 21> kSmoke = {"LD-01", "LD-03", "IN-01", "IN-05", "DP-01", "DP-04", "CN-02",
                                                     "CN-06", "CN-07", "MR-01", "MR-05", "XF-01", "XF-05", "XF-09",
                                                     "XF-26", "TS-01", "FL-07", "CL-01", "ER-01", "ER-04", "TH-02"};

}  // namespace

std::span<const std::string_view> group_named(std::string_view name) {
  if (name == "@smoke") return kSmoke;
  return {};
}

}  // namespace plugfest::conformance
