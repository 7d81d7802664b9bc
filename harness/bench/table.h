// Results of `plugfest bench` as text, Markdown, JSON and plots.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "harness/bench/bench.h"
#include "harness/bench/net_bench.h"
#include "harness/bench/tree.h"
#include "harness/report/results.h"

namespace plugfest::bench {

/// A line of the plot. `color`: an SVG color.
struct Series {
  std::string name;
  std::string color;
  std::vector<std::pair<double, double>> points;
};

/// Returns an SVG drawing with two logarithmic axes. Dotted lines show the slope of linear cost. Points must be
/// positive; series without points are omitted.
std::string log_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                     const std::vector<Series>& all);

/// The heading and the rows of the table, each with a newline.
std::string table_heading();
std::string table_row(const RowResult& result);

/// The results as a Markdown table with heading.
std::string markdown(const std::vector<RowResult>& results);

/// See docs/results.md for the format. `load`: the machine's load averages before and after the benchmark.
std::string to_json(const std::vector<RowResult>& results, const report::Document& document,
                    std::array<double, 2> load);

/// Three significant digits without an exponent.
std::string number(double value);

/// The machine's load average of the last minute.
double load_average();

/// The heading and the rows of the table, each with a newline.
std::string net_heading(const std::vector<std::string>& subjects);
std::string net_line(const NetResult& result);

std::string net_markdown(const std::vector<NetResult>& results);

/// Bandwidth of one comm by size, one line for each subject, as SVG.
std::string net_plot(const std::vector<NetResult>& results);

/// The heading and the rows of the table, each with a newline.
std::string tree_heading();
std::string tree_line(const TreeResult& tree);

/// See docs/results.md for the format. `load`: the machine's load average before the benchmark.
std::string tree_json(const std::vector<TreeResult>& trees, const report::Document& document, double load);

/// Times by number of links, as SVG.
std::string tree_plot(const std::vector<TreeResult>& trees);

}  // namespace plugfest::bench
