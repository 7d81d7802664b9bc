#include "harness/traffic/nccl/exec/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plugfest::nccl {
namespace {

using testing::ElementsAre;

TEST(LineSplitter, JoinsPartsAndEndsTheLastLine) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  splitter.add("one\ntw");
  EXPECT_THAT(lines, ElementsAre("one"));
  splitter.add("o\n\nthree");
  splitter.finish();
  splitter.finish();
  EXPECT_THAT(lines, ElementsAre("one", "two", "", "three"));
}

TEST(LineSplitter, CutsALineWithoutEnd) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  splitter.add(std::string(LineSplitter::kLongest + 1, 'x'));
  splitter.finish();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineSplitter::kLongest);
  EXPECT_EQ(lines[1], "x");
}

}  // namespace
}  // namespace plugfest::nccl
