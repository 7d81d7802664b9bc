// Plugins under tools: sanitizers, and programs of --wrap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

#ifdef PLUGFEST_TOY_PLUGIN_address
struct Sanitizer {
  const char* plugin;
  const char* fault;   ///< as TOY_FAULT names it
  const char* report;  ///< what the sanitizer prints about it
};

TEST(Sanitizer, WithoutARuntimeIsRefused) {
  EXPECT_EQ(error_of("run --plugin " PLUGFEST_TOY_PLUGIN_UNNAMED),
            "plugfest: " PLUGFEST_TOY_PLUGIN_UNNAMED
            ": built with clang's AddressSanitizer, and names no library with its runtime: link it with "
            "-shared-libsan, and set LD_LIBRARY_PATH to the folder that clang -print-runtime-dir prints\n");
}

class Sanitizers : public testing::TestWithParam<Sanitizer> {
 protected:
  static ShellResult judge(const std::string& nic, const std::string& fault) {
    return run_shell("TOY_FAULT='" + fault + "' exec " PLUGFEST_PROGRAM " run --nic " + nic +
                     " --rule DP-04 --plugin " + GetParam().plugin);
  }
};

TEST_P(Sanitizers, LoadInRanks) {
  for (const char* nic : {"roce", "loopback"}) {
    const ShellResult result = judge(nic, "");
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST_P(Sanitizers, EndTheRankAtAFinding) {
  for (const char* nic : {"roce", "loopback"}) {
    const ShellResult result = judge(nic, GetParam().fault);
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("init() crashed: SIGABRT"), HasSubstr(GetParam().report),
                                     HasSubstr("toy_plugin.cc:")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plugins, Sanitizers,
    testing::Values(Sanitizer{PLUGFEST_TOY_PLUGIN_address, "write past the heap", "heap-buffer-overflow"},
                    Sanitizer{PLUGFEST_TOY_PLUGIN_thread, "race", "WARNING: ThreadSanitizer: data race"}));
#endif

}  // namespace
}  // namespace plugfest::cli
