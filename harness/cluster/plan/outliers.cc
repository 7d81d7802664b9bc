#include "harness/cluster/plan/outliers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace plugfest::cluster {
namespace {

/// The upper one of the two in the middle: a member of two pairs, one of them with a slow partner, is not slow.
double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The value below which something is slow.
double limit_of(const std::vector<double>& values, double part) {
  const double median = median_of(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - median));
  // Of an even number the lower one in the middle: with two of four wrong, the deviation of the others counts.
  std::sort(deviations.begin(), deviations.end());
  const double usual = deviations.empty() ? 0 : 1.4826 * deviations[(deviations.size() - 1) / 2];
  return std::min(part * median, median - kDeviations * usual);
}

}  // namespace

Outliers find_slow(std::span<const PairFigure> figures, double part) {
  Outliers found;
  std::map<std::size_t, std::vector<double>> of_member;
  for (const PairFigure& it : figures) {
    of_member[it.one].push_back(it.value);
    of_member[it.other].push_back(it.value);
  }
  std::vector<double> medians;
  for (const auto& [member, values] : of_member) medians.push_back(median_of(values));
  if (figures.size() < 3) {
    std::vector<double> all;
    for (const PairFigure& it : figures) all.push_back(it.value);
    found.median = median_of(all);
    return found;
  }
  const double member_limit = std::max(limit_of(medians, part), kClearlySlow * part * median_of(medians));
  std::set<std::size_t> slow;
  for (const auto& [member, values] : of_member) {
    const double value = median_of(values);
    if (value >= member_limit) continue;
    slow.insert(member);
    found.members.push_back({member, value});
  }
  std::vector<double> rest;
  const auto is_rest = [&](const PairFigure& it) { return !slow.contains(it.one) && !slow.contains(it.other); };
  for (const PairFigure& it : figures) {
    if (is_rest(it)) rest.push_back(it.value);
  }
  found.median = median_of(rest);
  const double pair_limit = limit_of(rest, part);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (is_rest(figures[i]) && figures[i].value < pair_limit) found.pairs.push_back(i);
  }
  std::sort(found.members.begin(), found.members.end(),
            [](const auto& one, const auto& other) { return one.value < other.value; });
  std::sort(found.pairs.begin(), found.pairs.end(),
            [&](std::size_t one, std::size_t other) { return figures[one].value < figures[other].value; });
  return found;
}

}  // namespace plugfest::cluster
