// Finds what is slower than the rest.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace plugfest::cluster {

/// A figure of a pair, of which more is better.
struct PairFigure {
  std::size_t one = 0, other = 0;
  double value = 0;
};

struct Outliers {
  /// The median of all pairs without slow members; 0 if there are none.
  double median = 0;
  struct Member {
    std::size_t number = 0;
    /// The median of its pairs.
    double value = 0;
  };
  /// Members whose pairs are slow, whoever the partner is, slowest first.
  std::vector<Member> members;
  /// Slow pairs of members that are not slow: indices of figures, slowest first.
  std::vector<std::size_t> pairs;
};

/// What counts as slow: below this part of the median, unless the caller says otherwise, and further below it than
/// kDeviations times the deviation that is usual here (1.4826 times the median of absolute deviations, which equals the
/// standard deviation if figures are distributed normally). Both are robust: up to half of the figures may be wrong.
inline constexpr double kSlowPart = 0.6;
inline constexpr double kDeviations = 4;
/// A member below this part of what counts as slow is slow whatever the deviation: where figures vary much, four usual
/// deviations are more than the median.
inline constexpr double kClearlySlow = 0.4;

/// Compares members by the median of their pairs, since one slow member makes every other one have a slow pair; then
/// the pairs of the members that are not slow. Fewer than three figures are not compared.
Outliers find_slow(std::span<const PairFigure> figures, double part = kSlowPart);

}  // namespace plugfest::cluster
