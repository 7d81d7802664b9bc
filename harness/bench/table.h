// Results of the benchmark as text, Markdown and JSON.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "harness/bench/bench.h"
#include "harness/report/results.h"

namespace plugfest::bench {

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

}  // namespace plugfest::bench
