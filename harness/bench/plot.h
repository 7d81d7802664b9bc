// Draws the plot of the fabric benchmark.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plugfest::bench {

/// A line of the plot. `colour`: as in SVG.
struct Series {
  std::string name;
  std::string colour;
  std::vector<std::pair<double, double>> points;
};

/// Returns an SVG drawing with two logarithmic axes. Dotted lines show the slope of linear cost. Points must be
/// positive; series without points are omitted.
std::string log_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                     const std::vector<Series>& all);

}  // namespace plugfest::bench
