// plugfest bench fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "fabric/system/testing.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST(BenchFabric, WritesFiguresAndAPlot) {
  const ScratchFolder folder;
  const fs::path json = folder / "r.json", svg = folder / "r.svg";
  const ShellResult result =
      plugfest("bench fabric --k 2,4 --rounds 1 --json " + json.string() + " --plot " + svg.string());
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto trees = nlohmann::json::parse(content_of(json))["trees"];
  ASSERT_EQ(trees.size(), 2u);
  EXPECT_EQ(trees[1]["hosts"], 16);
  EXPECT_EQ(trees[1]["switches"], 20);
  EXPECT_EQ(trees[1]["links"], 48);
  for (const char* of : {"plugfest", "bare"}) {
    EXPECT_GT(trees[1][of]["up_seconds"], 0) << of;
    EXPECT_GT(trees[1][of]["down_seconds"], 0) << of;
  }
  EXPECT_GT(trees[1]["reach_seconds"], 0);
  EXPECT_THAT(content_of(svg), AllOf(HasSubstr("<svg "), HasSubstr(">bare kernel up</text>"), HasSubstr("</svg>")));
}

TEST(BenchFabric, RefusesOddNumbersOfPorts) {
  EXPECT_EQ(error_of("bench fabric --k 3"), "plugfest: topology fat-tree:3: K \"3\": expected an even number\n");
}

}  // namespace
}  // namespace plugfest::cli
