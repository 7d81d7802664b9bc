// plugfest replay and plugfest coll on a fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "fabric/system/testing/scratch_folder.h"
#include "harness/cli/tests/program.h"
#include "test_paths.h"

namespace plugfest::cli {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ReplayCommand, EveryProfilePassesOnTheTriangle) {
  const ScratchFolder folder;
  const std::string file = folder / "replay.json";
  const ShellResult result = plugfest("replay --operations 6 --seed 11 --calls --json " + file);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("Mesh v12 on triangle, 3 ranks, seed 11\n"));
  for (const char* profile : {"ring-ar", "ring-ll", "tree", "p2p-a2a", "pxn", "mixed"}) {
    EXPECT_THAT(result.output, ContainsRegex(std::string("  ") + profile + " +pass  [0-9]+ messages, "));
  }
  const json document = json::parse(content_of(file));
  const json& rings = document["profiles"][0];
  EXPECT_EQ(rings["profile"], "ring-ar");
  EXPECT_EQ(rings["ranks"].size(), 3u);
  std::map<std::string, std::size_t> calls;
  for (const json& call : rings["ranks"][0]["calls"]) ++calls[call["call"]];
  EXPECT_GT(calls["isend"], 0u);
  EXPECT_EQ(calls["isend"] + calls["irecv"], calls["test"]);
  EXPECT_EQ(rings["ranks"][0]["messages"], calls["isend"] + calls["irecv"]);
}

TEST(ReplayCommand, GroupsHaveSeveralTags) {
  const ScratchFolder folder;
  const std::string file = folder / "replay.json";
  const ShellResult result = plugfest("replay --profile pxn --ranks 2 --seed 3 --calls --json " + file);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  std::size_t widest = 0;
  const json document = json::parse(content_of(file));
  for (const json& call : document["profiles"][0]["ranks"][0]["calls"]) {
    if (call["call"] == "irecv") widest = std::max(widest, call["tags"].size());
  }
  EXPECT_GE(widest, 4u);
  EXPECT_LE(widest, 6u);
}

TEST(ReplayCommand, RefusesWhatItCannotRun) {
  EXPECT_THAT(error_of("replay --profile ring"), HasSubstr("no profile \"ring\": "));
  EXPECT_EQ(error_of("replay --ranks 4"), "plugfest: --ranks 4: expected 2 to 3, the hosts of triangle\n");
  EXPECT_THAT(error_of("replay --profile ring-ar -t line:3"),
              StartsWith("plugfest: the hosts do not reach each other in a ring: choose another topology\n"));
}

TEST(ReplayCommand, SkipsProfilesThatTheTopologyLacksUnlessTheyAreNamed) {
  const ShellResult result = plugfest("replay -t line:3 --operations 2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("  ring-ar  skip  the hosts do not reach each other in a ring"));
  EXPECT_THAT(result.output, ContainsRegex("  tree     pass  "));
}

}  // namespace
}  // namespace plugfest::cli
