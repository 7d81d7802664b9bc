#include "conformance/rules/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fabric/system/text.h"

namespace plugfest::conformance {
namespace {

// From loading to a dead peer. Each is fast also on an emulated processor.
constexpr std::array<std::string_view, 21> kSmoke = {"LD-01", "LD-03", "IN-01", "IN-05", "DP-01", "DP-04", "CN-02",
                                                     "CN-06", "CN-07", "MR-01", "MR-05", "XF-01", "XF-05", "XF-09",
                                                     "XF-26", "TS-01", "FL-07", "CL-01", "ER-01", "ER-04", "TH-02"};

constexpr std::array kGroups = {Group{"@smoke", "a few fast rules from every part of the contract", kSmoke}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kTitles = {{
    {"LD", "the library file"},
    {"IN", "init and finalize"},
    {"DP", "devices and their properties"},
    {"CN", "listen, connect, accept"},
    {"MR", "registration of memory"},
    {"XF", "isend and irecv"},
    {"TS", "test"},
    {"FL", "iflush and irecvConsumed"},
    {"CL", "close"},
    {"ER", "errors and lost peers"},
    {"TH", "threads"},
    {"PR", "traffic of NCCL's proxies"},
    {"CO", "collnet: reductions in the network"},
    {"PI", "profiler plugins"},
    {"EE", "NCCL itself, end to end"},
}};

}  // namespace

std::span<const Group> groups() { return kGroups; }

const Group& group_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Group& group : kGroups) {
    if (group.name == name) return group;
    names.emplace_back(group.name);
  }
  throw std::runtime_error(fmt::format("no group of rules '{}': {}", name, input::suggestion(name, names)));
}

std::size_t group_position(std::string_view letters) {
  const auto* const found =
      std::find_if(kTitles.begin(), kTitles.end(), [&](const auto& each) { return each.first == letters; });
  return static_cast<std::size_t>(found - kTitles.begin());
}

std::string_view group_title(std::string_view letters) {
  const std::size_t position = group_position(letters);
  return position < kTitles.size() ? kTitles[position].second : std::string_view();
}

}  // namespace plugfest::conformance
