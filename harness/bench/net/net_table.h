// Results of `plugfest bench net` as text, Markdown, JSON and a plot.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "harness/bench/net/net_bench.h"
#include "harness/report/results.h"

namespace plugfest::bench {

/// The heading and the rows of the table, each with a newline.
std::string net_heading(const std::vector<std::string>& subjects);
std::string net_line(const NetResult& result);

std::string net_markdown(const std::vector<NetResult>& results);

/// See docs/results.md for the format.
std::string net_json(const std::vector<NetResult>& results, const report::Document& document,
                     std::array<double, 2> load);

/// Bandwidth of one comm by size, one line for each subject, as SVG.
std::string net_plot(const std::vector<NetResult>& results);

}  // namespace plugfest::bench
