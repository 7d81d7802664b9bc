// The end of plugfest run and fabric exec by a signal: results, and no process or interface left.
#include <gtest/gtest.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/cli/tests/run_fixture.h"
#include "test_paths.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;

/// Processes whose environment contains `mark`: all descendants of a marked process.
std::set<pid_t> marked(const std::string& mark) {
  std::set<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (content_of(entry.path() / "environ").find(mark) != std::string::npos) found.insert(std::stoi(name));
  }
  return found;
}

/// Interfaces and mounts of this namespace.
std::string visible() {
  std::string names = content_of("/proc/self/net/dev");
  std::string interfaces;
  for (std::size_t colon = names.find(':'); colon != std::string::npos; colon = names.find(':', colon + 1)) {
    const std::size_t start = names.find_last_of(" \n", colon) + 1;
    interfaces += names.substr(start, colon - start) + " ";
  }
  return interfaces + content_of("/proc/self/mounts");
}

/// Starts plugfest, kills it after its output contains `sign`, and waits until all its processes have ended.
void kill_when(const std::vector<std::string>& arguments, const std::string& sign, std::size_t least_processes,
               const fs::path& folder) {
  const std::string before = visible();
  std::string mark = "PLUGFEST_TEST_MARK=" + folder.string();
  putenv(mark.data());
  // The test recognises processes by their environment, because ranks close inherited descriptors.
  const pid_t controller = start_plugfest(arguments, folder / "output");
  unsetenv("PLUGFEST_TEST_MARK");
  while (content_of(folder / "output").find(sign) == std::string::npos) {
    ASSERT_EQ(waitpid(controller, nullptr, WNOHANG), 0) << content_of(folder / "output");
    usleep(1000);
  }
  // The test needs running processes. Their number may be smaller for a moment between two rules.
  while (marked(mark).size() < least_processes) usleep(1000);
  kill(controller, SIGKILL);
  EXPECT_EQ(wait_for(controller), 128 + SIGKILL);
  while (!marked(mark).empty()) usleep(1000);  // ctest's time limit is the deadline
  EXPECT_EQ(visible(), before);
}

TEST_F(RunTest, LeavesNothingWhenKilledDuringRules) {
  // Five processes: the program, two of its sandbox, and two ranks.
  kill_when({"run", "--verbose", "--seed", "7", "--repeat", "100000", "--json", folder_ / "r.json"}, "CN-06", 5,
            folder_);
  EXPECT_FALSE(fs::exists(folder_ / "r.json")) << "results are written at the end";
}

TEST_F(RunTest, LeavesNothingWhenKilledDuringACommand) {
  kill_when({"fabric", "exec", "-t", "triangle", "a", "--", "sh", "-c", "echo ready; exec sleep 1000"}, "ready", 3,
            folder_);
}

TEST_F(RunTest, WritesPartialResultsOnCtrlC) {
  const fs::path json = folder_ / "r.json";
  const pid_t controller =
      start_plugfest({"run", "--rule", "XF-06", "--repeat", "100000", "--json", json}, folder_ / "output");
  while (output().find("pass") == std::string::npos) {
    ASSERT_EQ(waitpid(controller, nullptr, WNOHANG), 0) << output();
    usleep(1000);
  }
  kill(controller, SIGINT);
  EXPECT_EQ(wait_for(controller), 130) << output();
  const auto results = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(results["interrupted"], true);
  EXPECT_GE(results["summary"]["pass"], 1);
}

TEST_F(RunTest, EndsDuringAHungCallOnCtrlC) {
  // The mutant's connect waits for an accept that CN-06 never calls.
  const fs::path json = folder_ / "r.json";
  const pid_t controller =
      start_plugfest({"run", "--plugin", PLUGFEST_MUTANTS "/libnccl-net-connect_waits_for_accept.so", "--rule", "CN-06",
                      "--timeout-scale", "10000", "--json", json},
                     folder_ / "output");
  while (output().find("1 rule,") == std::string::npos) {
    ASSERT_EQ(waitpid(controller, nullptr, WNOHANG), 0) << output();
    usleep(1000);
  }
  usleep(200000);  // lets the hung call start; the test passes also if it has not
  kill(controller, SIGINT);
  EXPECT_EQ(wait_for(controller), 130) << output();
  const auto results = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(results["summary"]["missing"], 1);
}

}  // namespace
}  // namespace plugfest::cli
