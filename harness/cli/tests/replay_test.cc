// plugfest replay, coll and soak on a fabric.

#include <algorithm>
#include <map>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ReplayCommand, EveryProfilePassesOnTheTriangle) {
  const ScratchFolder folder;
  const std::string file = folder / "replay.json";
  const std::string result = output_of(plugfest("replay --operations 6 --seed 11 --calls --json " + file));
  EXPECT_THAT(result, HasSubstr("Mesh v12 on triangle, 3 ranks, seed 11\n"));
  for (const char* profile : {"ring-ar", "ring-ll", "tree", "p2p-a2a", "pxn", "mixed"})
    EXPECT_THAT(result, ContainsRegex(std::string("  ") + profile + " +pass  [0-9]+ messages, "));
  const json document = json::parse(content_of(file));
  const json& rings = document["profiles"][0];
  EXPECT_EQ(rings["profile"], "ring-ar");
  EXPECT_EQ(rings["ranks"].size(), 3u);
  std::map<std::string, std::size_t> calls;
  for (const json& call : rings["ranks"][0]["calls"]) ++calls[call["call"]];
  EXPECT_GT(calls["isend"], 0u);
  EXPECT_EQ(calls["isend"] + calls["irecv"], calls["test"]);
  EXPECT_EQ(rings["ranks"][0]["calls_left_out"], 0u);
  EXPECT_EQ(rings["ranks"][0]["messages"], calls["isend"] + calls["irecv"]);
}

TEST(ReplayCommand, GroupsHaveSeveralTags) {
  const ScratchFolder folder;
  const std::string file = folder / "replay.json";
  output_of(plugfest("replay --profile pxn --ranks 2 --seed 3 --calls --json " + file));
  std::size_t widest = 0;
  const json document = json::parse(content_of(file));
  for (const json& call : document["profiles"][0]["ranks"][0]["calls"])
    if (call["call"] == "irecv") widest = std::max(widest, call["tags"].size());
  EXPECT_GE(widest, 4u);
  EXPECT_LE(widest, 6u);
}

// The emulated GPU of the root can end its kernel before the proxy begins to send.
TEST(ReplayCommand, DeliversABroadcastThatIsTheLastOperation) {
  for (int run = 0; run < 4; ++run) {
    const Finished result = plugfest("replay --profile ring-ar --operations 6 --ranks 2 --seed 4");
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST(ReplayCommand, DescribesEachProfile) {
  EXPECT_THAT(unwrapped(plugfest("replay --help").output),
              AllOf(HasSubstr("Profiles: ring-ar (rings, SIMPLE: "), HasSubstr("); tree (two trees, ")));
}

TEST(ReplayCommand, RefusesWhatItCannotRun) {
  EXPECT_EQ(error_of("replay --calls"), "plugfest: --calls: the calls go into the JSON file: add --json FILE\n");
  EXPECT_THAT(error_of("replay --profile ring"), HasSubstr("no profile \"ring\": "));
  EXPECT_EQ(error_of("replay --ranks 4"), "plugfest: --ranks 4: expected 2 to 3, the hosts of triangle\n");
  EXPECT_THAT(error_of("replay --profile ring-ar -t line:3"),
              StartsWith("plugfest: the hosts do not reach each other in a ring: choose another topology\n"));
}

TEST(ReplayCommand, RefusesAPlanThatIsTooLong) {
  EXPECT_THAT(error_of("replay --profile ring-ar --ranks 2 --operations 50000"),
              ContainsRegex("plugfest: the plan of rank [ab] has [0-9.]+ MiB, the limit is 16 MiB: choose fewer "
                            "operations or smaller sizes\n"));
}

TEST(ReplayCommand, SkipsProfilesThatTheTopologyLacksUnlessTheyAreNamed) {
  const std::string result = output_of(plugfest("replay -t line:3 --operations 2"));
  EXPECT_THAT(result, HasSubstr("  ring-ar  skip  the hosts do not reach each other in a ring"));
  EXPECT_THAT(result, ContainsRegex("  tree     pass  "));
}

TEST(CollCommand, ShowsTheLogOfAPluginThatFails) {
  EXPECT_THAT(output_of(run_shell("NCCL_MESH_TC=300 exec " PLUGFEST_PROGRAM " coll allreduce -e 8"), 1),
              ContainsRegex("FAIL allreduce\n  rank [abc]: init\\(\\) returned ncclInvalidArgument \\(4\\)\n"
                            "  log of rank [abc]:\n.*expected a number from 0 to 255\n  again: "));
}

TEST(CollCommand, ReplacesControlCharactersInTheLogOfAPlugin) {
  EXPECT_THAT(
      output_of(run_shell("NCCL_MESH_TC=$(printf '\\033[31mred') exec " PLUGFEST_PROGRAM " coll allreduce -e 8"), 1),
      HasSubstr("NCCL_MESH_TC=?[31mred: expected a number from 0 to 255\n"));
}

TEST(CollCommand, ComputesEveryCollective) {
  for (const char* collective : {"allreduce", "allgather", "reducescatter", "broadcast", "alltoall", "sendrecv"}) {
    const ScratchFolder folder;
    const std::string file = folder / "coll.json";
    const Finished result = plugfest(std::string("coll ") + collective + " -b 8 -e 2M -f 64 -n 2 --json " + file);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output,
                HasSubstr("#        size         count      type   redop  root     time   algbw   busbw #wrong\n"));
    const json document = json::parse(content_of(file));
    EXPECT_EQ(document["sizes"].size(), 4u) << collective;
    for (const json& size : document["sizes"]) {
      EXPECT_EQ(size["results"][0]["wrong"], 0u) << collective;
      EXPECT_GT(size["results"][0]["seconds"], 0.0) << collective;
    }
  }
}

TEST(CollCommand, ComputesAnAllReduceOnATree) {
  const Finished result = plugfest("coll allreduce --algo tree -b 8 -e 2M -f 512 -n 2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(CollCommand, ComparesTwoPlugins) {
  const std::string result = output_of(
      plugfest("coll sendrecv -b 64K -e 64K -n 2 --ranks 2 --vs " PLUGFEST_MUTANTS "/libnccl-net-completes_late.so"));
  EXPECT_THAT(result, HasSubstr("# vs "));
  EXPECT_THAT(result, HasSubstr(" ratio\n"));
}

TEST(CollCommand, CountsWrongElements) {
  const std::string result =
      output_of(plugfest("coll sendrecv -b 1M -e 1M -n 2 --ranks 2 --seed 5 --plugin " PLUGFEST_MUTANTS
                         "/libnccl-net-last_byte_corrupted.so"),
                1);
  EXPECT_THAT(result, ContainsRegex("FAIL sendrecv, 1048576 bytes\n  [0-9]+ elements of results are wrong\n"));
  EXPECT_THAT(
      result,
      ContainsRegex("again: .* coll sendrecv --begin 1M --end 1M --operations 2 --ranks 2 --plugin .* --seed 5\n"));
}

TEST(ReplayCommand, SaysWhatAMutantDidAndHowToRepeatIt) {
  const std::string result = output_of(
      plugfest("replay --profile ring-ar --seed 5 --plugin " PLUGFEST_MUTANTS "/libnccl-net-last_byte_corrupted.so"),
      1);
  EXPECT_THAT(result, ContainsRegex("FAIL ring-ar\n  rank [abc]: message [0-9]+ from [abc] "));
  EXPECT_THAT(result, HasSubstr("\n  last calls of rank "));
  EXPECT_THAT(result, ContainsRegex("again: .* replay --plugin .* --profile ring-ar --seed 5\n"));
}

TEST(CollCommand, RefusesWhatItCannotRun) {
  EXPECT_THAT(error_of("coll allredcue"), HasSubstr("no collective \"allredcue\": "));
  for (const std::string size : {"8X", "8KM", "0", "K"}) {
    EXPECT_EQ(error_of("coll allreduce -b " + size),
              "plugfest: --begin \"" + size + "\": expected a size such as 8, 64K or 128M\n");
  }
  EXPECT_EQ(error_of("coll allreduce -f 1.000001"),
            "plugfest: --factor 1.000001: there are more than 1000 sizes from --begin 8 to --end 128M\n");
  EXPECT_EQ(error_of("coll allreduce -b 1M -e 1K"), "plugfest: --begin 1M: is above --end 1K\n");
  EXPECT_EQ(error_of("coll allgather --algo tree"), "plugfest: --algo tree: only allreduce has it\n");
  EXPECT_EQ(error_of("coll allreduce --algorithm pat"), "plugfest: --algo \"pat\": expected ring or tree\n");
  EXPECT_THAT(error_of("coll allreduce --algo tree -t line:3"), HasSubstr("not every host reaches every other one"));
  EXPECT_EQ(error_of("coll alltoall --protocol ll"), "plugfest: --protocol: alltoall uses simple only\n");
}

TEST(SoakCommand, MeasuresWhatEachUnitOfWorkLeaves) {
  const ScratchFolder folder;
  const std::string file = folder / "soak.json";
  const Finished result = plugfest("soak --minutes 0.001 --seed 5 --json " + file);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("  5 rounds, 20480 messages, 125 connections, 10240 registrations in "));
  EXPECT_THAT(result.output, HasSubstr("PASS nothing grows by more than three standard errors\n"));
  const json document = json::parse(content_of(file));
  EXPECT_EQ(document["series"].size(), 5u);
  EXPECT_EQ(document["growth"].size(), 2u * 3 * 3);  // ranks, resources, kinds of work
  EXPECT_EQ(document["verdict"], "pass");
  EXPECT_THAT(output_of(plugfest("report " + file), 0), HasSubstr("\"measure\": \"resident memory\""));
}

TEST(SoakCommand, NamesTheWorkThatLeaksAndHowMuch) {
  const Finished result = plugfest("soak --minutes 0.001" + mutant("send_leaks_64_bytes"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              ContainsRegex("rank a: [0-9.]+ ± [0-9.]+ bytes of resident memory more after each message\n"));
  EXPECT_THAT(result.output, ContainsRegex("  again: .*soak --minutes 0.001 --plugin .* --seed [0-9]+"));
}

TEST(SoakCommand, RefusesADurationThatIsNoNumberOfMinutes) {
  for (const char* minutes : {"0", "-1", "soon"}) {
    const Finished result = plugfest(std::string("soak --minutes ") + minutes);
    EXPECT_EQ(result.exit_code, 2) << minutes;
    EXPECT_THAT(result.output, StartsWith("plugfest: --minutes")) << minutes;
  }
}

}  // namespace
}  // namespace plugfest::cli
