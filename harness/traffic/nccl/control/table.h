// The table of nccl-tests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/traffic/nccl/commands.h"

namespace plugfest::nccl {

/// Results of one measurement, of all ranks: mean times, sums of wrong elements.
struct TableRow {
  Measurement measurement;
  int ranks = 0;
  std::size_t count = 0;
  Timing out_of_place = {};
  std::optional<Timing> in_place = {};
  std::string first_wrong = {};  ///< "rank 1: in the output, element 17 is 3, not 4"; empty if all are right
};

/// Two lines of names and a line of units.
std::string table_heading();
std::string table_row(const TableRow& row);

/// GB/s of a rank's data, and of the busiest link: the first times a factor of the operation.
double algorithm_bandwidth(const TableRow& row, const Timing& timing);
double bus_bandwidth(const TableRow& row, const Timing& timing);

/// The row of the answers of all ranks to a "run" command. Errors: std::runtime_error for other texts.
TableRow row_of(const Measurement& measurement, const std::vector<std::string>& answers);

}  // namespace plugfest::nccl
