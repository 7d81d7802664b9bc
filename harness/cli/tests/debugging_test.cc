// Plugins under tools: sanitizers, and programs of --wrap.

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Wrap, RunsEachRankUnderATool) {
  for (const char* nic : {"roce", "loopback"}) {
    const Finished result = plugfest(
        std::string("run --plugin " PLUGFEST_TOY_PLUGIN " --rule DP-04 --wrap 'env TOY_FAULT=print' --nic ") + nic);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("toy plugin prints\n")) << "output of ranks is not captured";
  }
}

TEST(Wrap, AttachesAToolToTheFirstRankOrToEach) {
  const std::string run = "run --rule CN-06 --wrap ";
  const std::string first = output_of(plugfest(run + "'echo attached to $(readlink /proc/{pid}/exe)'"));
  EXPECT_THAT(first, AllOf(HasSubstr("/plugfest-rank\n"), HasSubstr("1 pass")));
  EXPECT_EQ(first.find("attached"), first.rfind("attached"));
  const Finished all = plugfest(run + "'echo attached to {rank}: {pid}'");
  EXPECT_THAT(all.output, testing::ContainsRegex("attached to [abc].eth[01]: [0-9]+\n(.|\n)*attached to [abc].eth"));
}

TEST(Wrap, LetsADebuggerHoldTheRank) {
  if (access("/usr/bin/gdb", X_OK) != 0) GTEST_SKIP() << "needs gdb, which is not installed";
  for (const char* nic : {"roce", "loopback"}) {
    const Finished result = plugfest(
        std::string("run --plugin " PLUGFEST_TOY_PLUGIN
                    " --rule DP-04 --wrap 'gdb -q -batch -p {pid} -ex \"set breakpoint "
                    "pending on\" -ex \"break toy_plugin.cc:get_properties\" -ex continue -ex bt -ex detach' --nic ") +
        nic);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("Breakpoint 1, "), HasSubstr("1 pass")));
  }
}

TEST(Wrap, RefusesWhatCannotRun) {
  EXPECT_EQ(error_of("run --wrap 'gdb -p {pid}'"),
            "plugfest: --wrap with {pid} debugs a rank of one rule: select the rule with --rule\n");
  EXPECT_EQ(error_of("run --wrap '/no/such/tool -q'"),
            "plugfest: --wrap: /no/such/tool -q true ended with exit code 127: run it to see why\n");
}

#ifdef PLUGFEST_TOY_PLUGIN_address
struct Sanitizer {
  const char* plugin;
  const char* fault;   // as TOY_FAULT names it
  const char* report;  // the sanitizer's report of the fault
};

TEST(Sanitizer, IsRefusedWithoutARuntime) {
  EXPECT_EQ(error_of("run --plugin " PLUGFEST_TOY_PLUGIN_UNNAMED),
            "plugfest: " PLUGFEST_TOY_PLUGIN_UNNAMED
            ": built with clang's AddressSanitizer, and names no library with its runtime: link it with "
            "-shared-libsan, and set LD_LIBRARY_PATH to the folder that clang -print-runtime-dir prints\n");
}

class Sanitizers : public testing::TestWithParam<Sanitizer> {
 protected:
  static Finished test_plugin(const std::string& nic, const std::string& fault) {
    return run_shell("TOY_FAULT='" + fault + "' exec " PLUGFEST_PROGRAM " run --nic " + nic +
                     " --rule DP-04 --plugin " + GetParam().plugin);
  }
};

TEST_P(Sanitizers, LoadInRanks) {
  for (const char* nic : {"roce", "loopback"}) {
    const bool thread = GetParam().plugin == std::string(PLUGFEST_TOY_PLUGIN_thread);
    const Finished result = test_plugin(nic, thread ? "refuse random addresses" : "");
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST_P(Sanitizers, EndTheRankAtAFinding) {
  for (const char* nic : {"roce", "loopback"}) {
    const Finished result = test_plugin(nic, GetParam().fault);
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("init() crashed: SIGABRT"), HasSubstr(GetParam().report), HasSubstr("toy_plugin.cc:")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plugins, Sanitizers,
    testing::Values(Sanitizer{PLUGFEST_TOY_PLUGIN_address, "write past the heap", "heap-buffer-overflow"},
                    Sanitizer{PLUGFEST_TOY_PLUGIN_thread, "race", "WARNING: ThreadSanitizer: data race"}));
#endif

}  // namespace
}  // namespace plugfest::cli
