// A sandbox with a running fabric that is killed: no process, namespace or mount remains.
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "fabric/netns/testing/program.h"

namespace plugfest::netns {
namespace {

// The namespaces of all processes that this user may inspect, as "net:[4026531840]".
std::set<std::string> namespaces_in_use() {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    for (const char* kind : {"net", "mnt", "pid", "user"}) {
      const auto link = std::filesystem::read_symlink(process.path() / "ns" / kind, error);
      if (!error) found.insert(link.string());
    }
  }
  return found;
}

// Process ids of all descendants of `ancestor`.
std::vector<pid_t> descendants(pid_t ancestor) {
  std::vector<pid_t> found;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(ancestor) + "/task")) {
    std::ifstream file(thread.path() / "children");
    for (pid_t child; file >> child;) {
      found.push_back(child);
      const std::vector<pid_t> below = descendants(child);
      found.insert(found.end(), below.begin(), below.end());
    }
  }
  return found;
}

std::string mounts() {
  std::ifstream file("/proc/self/mountinfo");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

enum Victim : std::size_t { kOutside, kProcessOne, kInside };  // the three processes of a sandbox, outermost first

// Kills one of the three processes of a sandbox with a running fabric, and checks for leftovers.
void expect_nothing_left(const std::string& topology, std::size_t hosts, Victim victim) {
  // This process becomes the parent of all orphans and can wait for the exit of each.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string mounts_before = mounts();
  Program program({beside_this_test("fabric-holder"), topology});
  for (std::size_t host = 0; host < hosts; ++host) ASSERT_EQ(program.read_line(), "ready");

  std::vector<pid_t> all = descendants(program.pid());
  all.insert(all.begin(), program.pid());
  ASSERT_GE(all.size(), 3 + 2 * hosts);  // the three of the sandbox, and two in each host
  std::set<std::string> created;
  for (const pid_t pid : all) {
    for (const char* kind : {"net", "mnt", "pid", "user"}) {
      std::error_code error;
      const std::string process = "/proc/" + std::to_string(pid) + "/ns/";
      const std::string inside = std::filesystem::read_symlink(process + kind, error).string();
      const std::string outside = std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind).string();
      if (!error && inside != outside) created.insert(inside);
    }
  }
  ASSERT_GE(created.size(), 2 + 2 * hosts);  // a network and a mount namespace for each host and for the program

  kill(all[victim], SIGKILL);
  while (waitpid(-1, nullptr, 0) > 0) continue;
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(program.read_rest(), "");

  for (const pid_t pid : all) EXPECT_NE(kill(pid, 0), 0) << "process " << pid << " is left";
  const std::set<std::string> left = namespaces_in_use();
  for (const std::string& one : created) EXPECT_EQ(left.count(one), 0u) << one << " is left";
  EXPECT_EQ(mounts(), mounts_before);
}

TEST(KilledFabric, LeavesNothingAfterDeathOfTheOutsideProcess) { expect_nothing_left("triangle", 3, kOutside); }
TEST(KilledFabric, LeavesNothingAfterDeathOfProcessOne) { expect_nothing_left("triangle", 3, kProcessOne); }
TEST(KilledFabric, LeavesNothingAfterDeathOfTheProgram) { expect_nothing_left("triangle", 3, kInside); }
TEST(KilledFabric, LeavesNothingOfATree) { expect_nothing_left("fat-tree:4,rate=10Gbit", 16, kOutside); }
TEST(KilledFabric, LeavesNothingOfRails) { expect_nothing_left("rail:2,4", 4, kInside); }

}  // namespace
}  // namespace plugfest::netns
