// The table of nccl-tests.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/wire/fields.h"

namespace plugfest::traffic {

/// Time of one operation, and how many elements were wrong. Of several ranks: the mean, and the sum.
struct Timing {
  double seconds = 0;
  std::size_t wrong = 0;
  PLUGFEST_FIELDS(seconds, wrong)
};

struct TableRow {
  std::string_view collective = {};
  std::size_t ranks = 0;
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string_view type = "float", redop = "none";
  int root = -1;
  /// For each group of columns; nothing: "N/A".
  std::vector<std::optional<Timing>> timings = {};
  std::optional<double> ratio = {};
};

/// 10^9 bytes per second of a rank's data, and of the busiest link: the first times a factor of the collective.
double algorithm_bandwidth(const TableRow& row, const Timing& timing);
double bus_bandwidth(const TableRow& row, const Timing& timing);

/// Two lines of names and a line of units. `groups`: the names of the groups of columns, such as "in-place".
std::string table_heading(const std::vector<std::string>& groups, bool with_ratio = false);
std::string table_row(const TableRow& row);

}  // namespace plugfest::traffic
