#include "harness/traffic/nccl/control/table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace plugfest::nccl {
namespace {

TEST(Table, AddsUpTheRanks) {
  const Measurement measurement{.operation = Operation::kAllReduce, .bytes = 4000};
  const TableRow row = row_of(measurement, {"1000 3.00 0 5.00 1", "1000 5.00 2 7.00 0"});
  EXPECT_EQ(row.count, 1000u);
  EXPECT_DOUBLE_EQ(row.out_of_place.microseconds, 4);
  EXPECT_EQ(row.out_of_place.wrong, 2u);
  EXPECT_DOUBLE_EQ(row.in_place->microseconds, 6);
  EXPECT_EQ(row.in_place->wrong, 1u);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(row, row.out_of_place), 1);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row, row.out_of_place), 1);
}

TEST(Table, KeepsTheFirstWrongElement) {
  const Measurement measurement{.operation = Operation::kAllReduce, .bytes = 4000};
  const TableRow row =
      row_of(measurement, {"1000 3.00 0 5.00 0", "1000 5.00 2 7.00 0 in the output, element 17 is 3, not 4",
                           "1000 5.00 1 7.00 0 in the output, element 9 is 1, not 2"});
  EXPECT_EQ(row.first_wrong, "rank 1: in the output, element 17 is 3, not 4");
}

TEST(Table, ScalesTheBusBandwidthLikeNcclTests) {
  const std::vector<std::string> answers(4, "250 1.00 0 1.00 0");
  EXPECT_DOUBLE_EQ(bus_bandwidth(row_of({.operation = Operation::kAllReduce, .bytes = 1000}, answers), {1, 0}), 1.5);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row_of({.operation = Operation::kAllGather, .bytes = 1000}, answers), {1, 0}), 0.75);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row_of({.operation = Operation::kBroadcast, .bytes = 1000}, answers), {1, 0}), 1);
}

TEST(Table, ShowsNoInPlaceTimesWhereThereAreNone) {
  const TableRow row = row_of({.operation = Operation::kSendRecv, .bytes = 8}, {"2 1.00 0", "2 1.00 0"});
  EXPECT_FALSE(row.in_place);
  EXPECT_EQ(
      table_row(row),
      "            8             2     float    none    -1     1.00    0.01    0.01      0      N/A     N/A     N/A    "
      "N/A\n");
}

TEST(Table, RefusesAnAnswerThatIsNoResult) { EXPECT_THROW(row_of({}, {"1000 3.00"}), std::runtime_error); }

}  // namespace
}  // namespace plugfest::nccl
