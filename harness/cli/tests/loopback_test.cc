// plugfest run where namespaces are forbidden, and --nic loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fabric/netns/testing/program.h"
#include "fabric/system/testing.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

ShellResult plugfest_without_namespaces(const std::string& arguments) {
  return plugfest(arguments, netns::refuse_namespaces);
}

TEST(Loopback, IsSuggestedWhereNamespacesAreForbidden) {
  const ShellResult result = plugfest_without_namespaces("run --rule CN-06");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, StartsWith("plugfest: "));
  EXPECT_THAT(result.output, EndsWith("  or add --nic loopback, which needs no namespaces\n"));
}

TEST(Loopback, JudgesWithoutNamespaces) {
  const ShellResult result = plugfest_without_namespaces("run --nic loopback --rule CN-06,DP-04,XF-06,ER-04 --seed 7");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(unwrapped(result.output), HasSubstr("triangle, NIC loopback"));
  EXPECT_THAT(result.output, HasSubstr("4 pass"));
}

TEST(Loopback, JudgesAllRulesWithoutNamespaces) {
  const ShellResult result = plugfest_without_namespaces("run --nic loopback");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(Loopback, JudgesBehindABridge) {
  const ShellResult result = plugfest_without_namespaces("run --nic loopback -t star:4 --rule XF-01,XF-31");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(Loopback, ShowsTheInterfacesOfAHostAlsoFromAFolderWithSpaces) {
  const std::filesystem::path program(PLUGFEST_PROGRAM);
  const ScratchFolder scratch;
  const std::filesystem::path folder = scratch / "a folder";
  std::filesystem::create_directories(folder / "bin");
  for (const char* name : {"plugfest", "plugfest-rank"})
    std::filesystem::copy_file(program.parent_path() / name, folder / "bin" / name);
  std::filesystem::create_symlink(program.parent_path().parent_path() / "lib", folder / "lib");
  const ShellResult result = run_shell("TOY_FAULT='refuse lo' '" + (folder / "bin/plugfest").string() +
                                       "' run --nic loopback --rule DP-04 --plugin " PLUGFEST_TOY_PLUGIN);
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(Loopback, NamesUnsupportedTopologies) {
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback -t fat-tree:2").output,
              StartsWith("plugfest: --nic loopback: edge1 is a router, which this NIC kind does not support: "));
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback -t star:300").output,
              HasSubstr("topology star:300 is too large: the limit is 256 subnets of 254 hosts"));
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback --oob").output, HasSubstr("there is no fabric"));
}

}  // namespace
}  // namespace plugfest::cli
