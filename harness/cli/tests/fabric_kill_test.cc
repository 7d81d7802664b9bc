// SIGKILL of plugfest at random times of fabric commands and runs. No process, mount or file may remain.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fabric/system/testing.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr int kRounds = 24;
constexpr int kLatestKillUs = 120'000;
const char* const kTopologies[] = {"pair",       "triangle",         "mesh:4",   "ring:4",       "line:3",    "star:4",
                                   "fat-tree:2", "leaf-spine:2,2,2", "rail:2,4", "pair:links=2", "fat-tree:4"};

int finish(const Words& words) { return wait_for(start_plugfest(words, "/dev/null")); }

void kill_after(const Words& words, int microseconds) {
  const pid_t child = start_plugfest(words, "/dev/null");
  usleep(static_cast<useconds_t>(microseconds));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

std::string mounts() { return content_of("/proc/self/mountinfo"); }

TEST(KilledPlugfest, LeavesNothing) {
  const ScratchFolder folder;
  setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  // Orphans become children of this process, so that it can wait for all of them. The kernel removes namespaces with
  // their mounts and interfaces when the last process in them ends.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string mounts_before = mounts();
  const char* given = std::getenv("SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}();
  std::printf("SEED=%u\n", seed);
  std::fflush(stdout);  // otherwise each child prints it again
  std::mt19937 random(seed);
  const auto draw = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };

  for (int round = 0; round < kRounds; ++round) {
    const std::string topology = kTopologies[draw(std::size(kTopologies))];
    const int when = draw(kLatestKillUs);
    const int what = draw(4);
    const Words commands[] = {{"fabric", "up", "lab", "-t", topology},
                              {"fabric", "exec", "-t", topology, topology[0] == 'p' ? "a" : "h1", "--", "sleep", "9"},
                              {"run", "-t", topology, "--rule", "CN-06,XF-01,ER-04"},
                              {"fabric", "down", "lab"}};
    SCOPED_TRACE(commands[what][0] + " " + commands[what][1] + " " + topology + " " + std::to_string(when));
    if (what == 3) {
      EXPECT_EQ(finish({"fabric", "up", "lab", "-t", topology}), 0);
    }
    kill_after(commands[what], when);
    if (what == 0 && when % 2 == 0) finish({"fabric", "list"});
    EXPECT_EQ(finish({"fabric", "down", "--all"}), 0);
    while (waitpid(-1, nullptr, 0) > 0) continue;
    EXPECT_EQ(errno, ECHILD);
    EXPECT_EQ(finish({"fabric", "down", "--all"}), 0);  // cleans up after a killed keeper
    EXPECT_TRUE(fs::is_empty(folder));
    EXPECT_EQ(mounts(), mounts_before);
  }
}

}  // namespace
}  // namespace plugfest::cli
