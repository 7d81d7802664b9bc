// Results of the benchmark as a table and as JSON.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "harness/bench/bench.h"
#include "harness/report/document.h"

namespace plugfest::bench {

/// Each ends with a newline.
std::string table_heading();
std::string table_row(const RowResult& result);

/// The same as a table in Markdown, heading included.
std::string markdown(const std::vector<RowResult>& results);

/// See docs/results.md. `load`: the machine's load averages, before and after.
std::string to_json(const std::vector<RowResult>& results, const report::Document& document,
                    std::array<double, 2> load);

/// The machine's load average over the last minute.
double load_average();

}  // namespace plugfest::bench
