// The end of commands by a signal: results, and no process, interface, mount or file left.
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include <cerrno>
#include <random>
#include <set>
#include <stop_token>
#include <thread>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

fs::path folder_of(pid_t process) { return fs::path("/proc") / std::to_string(process); }

// Processes whose environment contains `mark`: all descendants of a marked process.
std::set<pid_t> marked(const std::string& mark) {
  std::set<pid_t> found;
  for (const pid_t process : all_processes())
    if (content_of(folder_of(process) / "environ").find(mark) != std::string::npos) found.insert(process);
  return found;
}

// Interfaces and mounts of this namespace.
std::string visible() {
  std::string names = content_of("/proc/self/net/dev");
  std::string interfaces;
  for (std::size_t colon = names.find(':'); colon != std::string::npos; colon = names.find(':', colon + 1)) {
    const std::size_t start = names.find_last_of(" \n", colon) + 1;
    interfaces += names.substr(start, colon - start) + " ";
  }
  return interfaces + content_of("/proc/self/mounts");
}

// Starts plugfest, kills it after its output contains `sign`, and waits until all its processes have ended.
void kill_when(const std::vector<std::string>& arguments, const std::string& sign, std::size_t least_processes,
               const fs::path& folder) {
  const std::string before = visible();
  std::string mark = "PLUGFEST_TEST_MARK=" + folder.string();
  putenv(mark.data());
  // The test recognizes processes by their environment, because ranks close inherited descriptors.
  const pid_t controller = start_plugfest(arguments, folder / "output");
  unsetenv("PLUGFEST_TEST_MARK");
  await_output(folder / "output", sign);
  // The test needs running processes. Their number may be smaller for a moment between two rules.
  EXPECT_TRUE(wait_until([&] { return marked(mark).size() >= least_processes; }));
  kill(controller, SIGKILL);
  EXPECT_EQ(await_exit(controller), 128 + SIGKILL);
  EXPECT_TRUE(wait_until([&] { return marked(mark).empty(); }));
  EXPECT_EQ(visible(), before);
}

TEST_F(RunTest, LeavesNothingWhenKilledDuringRules) {
  // The program, two processes of its sandbox, and two ranks; only root sees the environment of the process that runs
  // the rules.
  kill_when({"run", "--verbose", "--seed", "7", "--repeat", "100000", "--json", folder_ / "r.json"}, "CN-06", 4,
            folder_);
  EXPECT_FALSE(fs::exists(folder_ / "r.json")) << "results are written at the end";
}

TEST_F(RunTest, LeavesNothingWhenKilledDuringARound) {
  kill_when({"run", "--watch", "--verbose", "--repeat", "100000", "--rule", "CN-06"}, "CN-06", 5, folder_);
}

TEST_F(RunTest, LeavesNothingWhenKilledDuringACommand) {
  if (kSanitized) GTEST_SKIP() << "a library with a sanitizer cannot be preloaded into programs without it";
  kill_when({"fabric", "exec", "-t", "triangle", "a", "--", "sh", "-c", "echo ready; exec sleep 1000"}, "ready", 3,
            folder_);
}

TEST_F(RunTest, WritesResultsAlthoughNobodyReadsItsOutput) {
  const fs::path json = folder_ / "r.json";
  output_of(run_shell(PLUGFEST_PROGRAM " run --rule CN-06,XF-09 --plugin " PLUGFEST_MUTANTS
                                       "/libnccl-net-posted_size_reported.so --json " +
                      json.string() + " | true"));
  EXPECT_EQ(nlohmann::json::parse(content_of(json))["summary"]["fail"], 1);
}

TEST_F(RunTest, ShowsProgressOffATerminal) {
  PLUGFEST_LONG_TEST();
  // The mutant's connect waits for an accept that CN-06 never calls.
  plugfest("run --plugin " PLUGFEST_MUTANTS
           "/libnccl-net-connect_waits_for_accept.so --rule CN-06 --timeout-scale 1.2");
  EXPECT_NE(output().find("plugfest: 0 of 1 rule\n"), std::string::npos) << output();
}

TEST_F(RunTest, WritesPartialResultsOnCtrlC) {
  const fs::path json = folder_ / "r.json";
  const pid_t controller =
      start_plugfest({"run", "--rule", "XF-06", "--repeat", "100000", "--json", json}, folder_ / "output");
  await_output(folder_ / "output", "pass");
  kill(controller, SIGINT);
  EXPECT_EQ(await_exit(controller), 130) << output();
  const auto results = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(results["interrupted"], true);
  EXPECT_GE(results["summary"]["pass"], 1);
}

// Ends a run by SIGTERM once its output contains `sign`, while all processors are busy. `to_all`: sends it to every
// process, as service managers do. Returns the results.
nlohmann::json end_busy_run(const ScratchFolder& folder, const std::string& rules, const std::string& sign,
                            bool to_all) {
  const std::string mark = "PLUGFEST_TEST_MARK=" + folder.path().string();
  const pid_t controller = start_plugfest(
      {"run", "--rule", rules, "--repeat", "100000", "--verbose", "--json", folder / "r.json", "--junit",
       folder / "r.xml", "--html", folder / "r.html", "--markdown", folder / "r.md", "--badge", folder / "badge.json"},
      folder / "output", {mark});
  std::vector<std::jthread> load;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    load.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) continue;
    });
  }
  await_output(folder / "output", sign);
  kill(controller, SIGTERM);
  if (to_all)
    for (const pid_t process : marked(mark)) kill(process, SIGTERM);
  EXPECT_EQ(await_exit(controller), 128 + SIGTERM) << content_of(folder / "output");
  for (const char* const name : {"r.xml", "r.html", "r.md", "badge.json"})
    EXPECT_THAT(content_of(folder / name), testing::HasSubstr("Mesh v12")) << name;
  nlohmann::json results = nlohmann::json::parse(content_of(folder / "r.json"));
  EXPECT_EQ(results["interrupted"], true);
  EXPECT_GE(results["summary"]["pass"], 1);
  for (const char* const verdict : {"fail", "crash", "timeout", "error", "warn"})
    EXPECT_EQ(results["summary"][verdict], 0) << content_of(folder / "output");
  return results;
}

TEST_F(RunTest, WritesPartialResultsIfSigtermComesWhileAllRanksAreBusy) {
  for (const bool to_all : {false, true})
    EXPECT_GE(end_busy_run(folder_, "XF-*", "pass    XF-", to_all)["summary"]["missing"], 1);
}

TEST_F(RunTest, WritesResultsIfSigtermComesWhileARepetitionStarts) {
  end_busy_run(folder_, "XF-06", ": 1 pass in ", false);
}

TEST_F(RunTest, EndsDuringAHungCallOnCtrlC) {
  // The mutant's connect waits for an accept that CN-06 never calls.
  const std::string mark = "PLUGFEST_TEST_MARK=" + folder_.path().string();
  const fs::path json = folder_ / "r.json";
  const pid_t controller =
      start_plugfest({"run", "--plugin", PLUGFEST_MUTANTS "/libnccl-net-connect_waits_for_accept.so", "--rule", "CN-06",
                      "--timeout-scale", "10000", "--json", json},
                     folder_ / "output", {mark});
  await_output(folder_ / "output", "1 rule,");
  // The mutant repeats connect in the service thread. No other call runs so long.
  const auto hangs = [&] {
    std::error_code ignored;
    for (const pid_t process : marked(mark))
      for (const fs::directory_entry& thread : fs::directory_iterator(folder_of(process) / "task", ignored))
        if (content_of(thread.path() / "comm") == "svc\n" &&
            std::atof(content_of(thread.path() / "schedstat").c_str()) > 5e7)
          return true;
    return false;
  };
  EXPECT_TRUE(wait_until(hangs));
  kill(controller, SIGINT);
  EXPECT_EQ(await_exit(controller), 130) << output();
  const auto results = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(results["summary"]["missing"], 1);
}

constexpr int kLatestKillUs = 120'000;
const char* const kTopologies[] = {"pair",       "triangle",         "mesh:4",   "ring:4",       "line:3",    "star:4",
                                   "fat-tree:2", "leaf-spine:2,2,2", "rail:2,4", "pair:links=2", "fat-tree:4"};

int finish(const Words& words) { return await_exit(start_plugfest(words, "/dev/null")); }

void kill_after(const Words& words, int microseconds) {
  const pid_t child = start_plugfest(words, "/dev/null");
  usleep(static_cast<useconds_t>(microseconds));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

std::string mounts() { return content_of("/proc/self/mountinfo"); }

TEST(KilledPlugfest, LeavesNoEmptyFolder) {
  const ScratchFolder folder;
  setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  // A process that is killed between the creation of the folder and of its first file leaves this state.
  fs::create_directory(folder / "plugfest");
  fs::permissions(folder / "plugfest", fs::perms::owner_all);
  EXPECT_EQ(finish({"fabric", "down", "--all"}), 0);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(KilledPlugfest, LeavesNothing) {
  const ScratchFolder folder;
  setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  // Orphans become children of this process, so that it can wait for all of them. The kernel removes namespaces with
  // their mounts and interfaces when the last process in them ends.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string mounts_before = mounts();
  const int rounds = runs_long_tests() ? 50 : 10;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937 random(static_cast<unsigned>(round));
    const auto draw = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
    const std::string topology = kTopologies[draw(std::size(kTopologies))];
    const int when = draw(kLatestKillUs);
    const int what = draw(4);
    const Words commands[] = {{"fabric", "up", "lab", "-t", topology},
                              {"fabric", "exec", "-t", topology, topology[0] == 'p' ? "a" : "h1", "--", "sleep", "9"},
                              {"run", "-t", topology, "--rule", "CN-06,XF-01,ER-04"},
                              {"fabric", "down", "lab"}};
    SCOPED_TRACE(commands[what][0] + " " + commands[what][1] + " " + topology + " " + std::to_string(when));
    EXPECT_TRUE(what != 3 || finish({"fabric", "up", "lab", "-t", topology}) == 0);
    kill_after(commands[what], when);
    if (what == 0 && when % 2 == 0) finish({"fabric", "list"});
    EXPECT_EQ(finish({"fabric", "down", "--all"}), 0);
    while (waitpid(-1, nullptr, 0) > 0) continue;
    EXPECT_EQ(errno, ECHILD);
    EXPECT_EQ(finish({"fabric", "down", "--all"}), 0);  // cleans up after a killed keeper
    for (const fs::directory_entry& left : fs::recursive_directory_iterator(folder)) ADD_FAILURE() << left;
    EXPECT_EQ(mounts(), mounts_before);
  }
}

}  // namespace
}  // namespace plugfest::cli
