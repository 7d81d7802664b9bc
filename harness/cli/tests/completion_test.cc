// Completion in bash: what cmake/completion.bash offers.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "fabric/system/testing.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

/// What bash offers after these words; the last one may be incomplete.
std::string completed(const std::string& words) {
  return run_shell("bash -c 'source " PLUGFEST_COMPLETION "; plugfest() { exec " PLUGFEST_PROGRAM
                   " \"$@\"; }; COMP_WORDS=(" +
                   words + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _plugfest; echo ${COMPREPLY[@]}'")
      .output;
}

TEST(Completion, OffersSubcommandsOptionsRulesAndFiles) {
  EXPECT_EQ(completed("plugfest ru"), "run rules\n");
  EXPECT_EQ(completed("plugfest fabric do"), "down\n");
  EXPECT_EQ(completed("plugfest run --jun"), "--junit\n");
  EXPECT_EQ(completed("plugfest run --strict --rule CN-06"), "CN-06\n");
  EXPECT_EQ(completed("plugfest run -r CN-06"), "CN-06\n");
  EXPECT_EQ(completed("plugfest run --seed \"\""), "\n");
  EXPECT_EQ(completed("plugfest fabric list --json /etc/hostn"), "/etc/hostname\n");
  const ScratchFolder folder;
  std::ofstream(folder / "barrier.so") << "";
  EXPECT_EQ(completed("plugfest run --plugin " + folder.path().string() + "/ba"),
            (folder / "barrier.so").string() + "\n");
  EXPECT_EQ(completed("plugfest run --topology " + folder.path().string() + "/ba"), "\n") << "a name";
}

}  // namespace
}  // namespace plugfest::cli
