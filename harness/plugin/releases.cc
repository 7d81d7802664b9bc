// Source: the tags of https://github.com/NVIDIA/nccl, v2.30.7-1 for 2.30.7:
// src/plugin/{net,gin,rma,profiler,tuner,env}.cc and the folders of these names; before 2.26 src/net.cc,
// src/misc/profiler.cc and src/misc/tuner.cc.
#include "harness/plugin/releases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

namespace plugfest::plugin {
namespace {

// `collnet` has always the versions of the net.
constexpr Release release(std::string_view name, Versions net, Versions gin, Versions rma, Versions profiler,
                          Versions tuner, Versions env) {
  return {.name = name, .looked_up = {net, net, gin, rma, profiler, tuner, env}};
}

constexpr Release kReleases[] = {
    //                 net      gin       rma       profiler tuner    env
    release("2.19.1", {5, 7}, {}, {}, {}, {1, 1}, {}),
    release("2.19.3", {5, 7}, {}, {}, {}, {1, 1}, {}),
    release("2.19.4", {5, 7}, {}, {}, {}, {1, 1}, {}),
    release("2.20.3", {5, 8}, {}, {}, {}, {1, 1}, {}),
    release("2.20.5", {5, 8}, {}, {}, {}, {1, 1}, {}),
    release("2.21.5", {5, 8}, {}, {}, {}, {2, 2}, {}),
    release("2.22.3", {5, 8}, {}, {}, {}, {2, 3}, {}),
    release("2.23.4", {5, 8}, {}, {}, {1, 1}, {2, 3}, {}),
    release("2.24.3", {5, 9}, {}, {}, {1, 2}, {2, 4}, {}),
    release("2.25.1", {5, 9}, {}, {}, {1, 2}, {2, 4}, {}),
    release("2.26.2", {6, 10}, {}, {}, {1, 3}, {2, 4}, {}),
    release("2.26.3", {6, 10}, {}, {}, {1, 3}, {2, 4}, {}),
    release("2.26.5", {6, 10}, {}, {}, {1, 3}, {2, 4}, {}),
    release("2.26.6", {6, 10}, {}, {}, {1, 3}, {2, 4}, {}),
    release("2.27.3", {6, 10}, {}, {}, {1, 4}, {2, 4}, {}),
    release("2.27.5", {6, 10}, {}, {}, {1, 4}, {2, 4}, {}),
    release("2.27.6", {6, 10}, {}, {}, {1, 4}, {2, 4}, {}),
    release("2.27.7", {6, 10}, {}, {}, {1, 4}, {2, 4}, {}),
    release("2.28.3", {6, 11}, {}, {}, {1, 5}, {2, 5}, {}),
    release("2.28.7", {6, 11}, {11, 11}, {}, {1, 5}, {2, 5}, {1, 1}),
    release("2.28.9", {6, 11}, {11, 11}, {}, {1, 5}, {2, 5}, {1, 1}),
    release("2.29.2", {6, 11}, {11, 11}, {}, {1, 6}, {2, 5}, {1, 1}),
    release("2.29.3", {6, 11}, {11, 11}, {}, {1, 6}, {2, 5}, {1, 1}),
    release("2.29.7", {6, 11}, {11, 12}, {}, {1, 6}, {2, 5}, {1, 1}),
    release("2.30.3", {6, 12}, {11, 13}, {13, 13}, {1, 6}, {2, 6}, {1, 1}),
    release("2.30.4", {6, 12}, {11, 13}, {13, 13}, {1, 6}, {2, 6}, {1, 1}),
    release("2.30.7", {6, 12}, {13, 14}, {13, 14}, {1, 6}, {2, 6}, {1, 2}),
};

// The numbers in "2.30.7", for comparisons.
std::vector<int> numbers(std::string_view name) {
  std::vector<int> numbers{0};
  for (const char c : name)
    if (c == '.')
      numbers.push_back(0);
    else if (c >= '0' && c <= '9' && numbers.back() < 100'000)
      numbers.back() = numbers.back() * 10 + (c - '0');
  return numbers;
}

std::string_view without_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "nccl-";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

}  // namespace

int Release::choose(InterfaceKind kind, const std::vector<int>& exported) const {
  const Versions& range = of(kind);
  for (auto version = exported.rbegin(); version != exported.rend(); ++version)
    if (*version >= range.oldest && *version <= range.newest) return *version;
  return 0;
}

std::span<const Release> releases() { return kReleases; }

const Release* find_release(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kReleases), std::end(kReleases),
                                         [&](const Release& release) { return release.name == without_prefix(name); });
  return found == std::end(kReleases) ? nullptr : found;
}

std::string nearest_releases(std::string_view name) {
  const std::vector<int> wanted = numbers(without_prefix(name));
  const auto* const after = std::find_if(std::begin(kReleases), std::end(kReleases),
                                         [&](const Release& release) { return numbers(release.name) > wanted; });
  // Two before and one after, or the last three.
  const auto count = std::end(kReleases) - std::begin(kReleases);
  const auto first = std::clamp<std::ptrdiff_t>(after - std::begin(kReleases) - 2, 0, count - 3);
  return fmt::format("{}, {} and {}", kReleases[first].name, kReleases[first + 1].name, kReleases[first + 2].name);
}

}  // namespace plugfest::plugin
