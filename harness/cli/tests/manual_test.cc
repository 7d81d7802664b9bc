// Manual pages and completion: what `plugfest manual` writes for the installation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fabric/system/testing/scratch_folder.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// The folder that `plugfest manual` has written.
class Manual : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(plugfest("manual " + folder_.path().string()).exit_code, 0); }
  std::string page(const std::string& name) const {
    return content_of(folder_.path() / "man" / "man1" / (name + ".1"));
  }
  fs::path bash() const { return folder_.path() / "bash-completion" / "completions" / "plugfest"; }

  /// What bash offers after these words; the last one may be incomplete.
  std::string completed(const std::string& words) const {
    return run_shell("bash -c 'source " + bash().string() +
                     "; plugfest() { exec " PLUGFEST_PROGRAM " \"$@\"; }; COMP_WORDS=(" + words +
                     "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
                     "_plugfest; echo ${COMPREPLY[@]}'")
        .output;
  }

  ScratchFolder folder_;
};

TEST_F(Manual, HasAPageForEachSubcommand) {
  EXPECT_THAT(page("plugfest"), AllOf(HasSubstr(".TH PLUGFEST 1 \"\" \"plugfest "),
                                      HasSubstr("\\fBplugfest\\-run\\fR(1)"), Not(HasSubstr("plugfest\\-manual"))));
  EXPECT_THAT(page("plugfest-run"),
              HasSubstr(".TP\n\\fB\\-\\-json\\fR \\fIFILE\\fR\nWrite the results to FILE as JSON\n"));
  EXPECT_THAT(page("plugfest-fabric-up"), HasSubstr("plugfest\\-fabric\\-up \\- Build a background fabric\n"));
  EXPECT_THAT(plugfest("--help").output, Not(HasSubstr("manual")));
}

TEST_F(Manual, CompletesSubcommandsOptionsRulesAndFiles) {
  EXPECT_EQ(completed("plugfest ru"), "run rules\n");
  EXPECT_EQ(completed("plugfest fabric do"), "down\n");
  EXPECT_EQ(completed("plugfest run --jun"), "--junit\n");
  EXPECT_EQ(completed("plugfest run --strict --rule CN-06"), "CN-06\n");
  EXPECT_EQ(completed("plugfest run --plugin " + folder_.path().string() + "/ba"),
            (folder_.path() / "bash-completion").string() + "\n");
  EXPECT_EQ(completed("plugfest run --seed \"\""), "\n");
}

TEST_F(Manual, CompletesInZsh) {
  const std::string script = content_of(folder_.path() / "zsh" / "vendor-completions" / "_plugfest");
  EXPECT_THAT(script, AllOf(HasSubstr("#compdef plugfest\n"), HasSubstr("_plugfest_fabric_up() {\n"),
                            HasSubstr("'(--json)--json[Write the results to FILE as JSON]:FILE:_files'")));
}

TEST(ManualErrors, NameTheFolder) {
  EXPECT_THAT(error_of("manual /proc/nothing"), HasSubstr("/proc/nothing"));
  EXPECT_THAT(error_of("manual"), HasSubstr("FOLDER is missing"));
}

}  // namespace
}  // namespace plugfest::cli
