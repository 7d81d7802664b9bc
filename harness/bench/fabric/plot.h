// The plot of the fabric benchmark.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plugfest::bench {

/// A line of the plot: name, colour as SVG takes it, points.
struct Series {
  std::string name;
  std::string colour;
  std::vector<std::pair<double, double>> points;
};

/// An SVG drawing with a logarithmic scale on both axes, on which cost that is linear has the slope of the dotted
/// lines. Points must be positive; series without any are left out.
std::string log_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                     const std::vector<Series>& all);

}  // namespace plugfest::bench
