// SIGKILL of plugfest at random moments of what it does with fabrics: nothing is left, as root and as a user.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fabric/system/testing/scratch_folder.h"
#include "test_paths.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr int kRounds = 24;
constexpr int kLatestKillUs = 120'000;
const char* const kTopologies[] = {"pair",       "triangle",         "mesh:4",   "ring:4",       "line:3",    "star:4",
                                   "fat-tree:2", "leaf-spine:2,2,2", "rail:2,4", "pair:links=2", "fat-tree:4"};

pid_t start(const Words& words) {
  const pid_t child = fork();
  if (child != 0) return child;
  std::vector<char*> argv = {const_cast<char*>(PLUGFEST_PROGRAM)};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  if (std::freopen("/dev/null", "w", stdout) == nullptr || dup2(1, 2) < 0) _exit(126);
  execv(PLUGFEST_PROGRAM, argv.data());
  _exit(127);
}

int finish(const Words& words) {
  int status = 0;
  waitpid(start(words), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void kill_after(const Words& words, int microseconds) {
  const pid_t child = start(words);
  usleep(static_cast<useconds_t>(microseconds));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

std::string mounts() {
  std::ifstream file("/proc/self/mountinfo");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(KilledPlugfest, LeavesNothingWhateverItWasDoing) {
  const ScratchFolder folder;
  setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  // What loses its parent becomes our child, so that waiting for the last child is waiting for the last process, and
  // namespaces and their mounts and interfaces last as long as the processes and descriptors that hold them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string mounts_before = mounts();
  const char* given = std::getenv("SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}();
  std::printf("SEED=%u\n", seed);
  std::fflush(stdout);  // or each child would print it again
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
    EXPECT_EQ(finish({"fabric", "down", "--all"}), 0);  // cleans up after a keeper that had been killed
    EXPECT_TRUE(fs::is_empty(folder));
    EXPECT_EQ(mounts(), mounts_before);
  }
}

}  // namespace
}  // namespace plugfest::cli
