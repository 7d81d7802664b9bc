// The program on a real fabric: what it prints, its exit codes, and that nothing outlives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "fabric/system/testing/scratch_folder.h"
#include "test_paths.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Starts plugfest with its output in `output`.
pid_t start(const std::vector<std::string>& arguments, const fs::path& output) {
  std::vector<char*> argv = {const_cast<char*>(PLUGFEST_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(output.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0) _exit(126);
    execv(PLUGFEST_PROGRAM, argv.data());
    _exit(127);
  }
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RunTest : public testing::Test {
 protected:
  int plugfest(const std::vector<std::string>& arguments) { return wait_for(start(arguments, folder_ / "output")); }
  std::string output() const { return content(folder_ / "output"); }

  ScratchFolder folder_;
};

/// Processes whose environment holds `mark`: those that a marked process started, however far down.
std::set<pid_t> marked(const std::string& mark) {
  std::set<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (content(entry.path() / "environ").find(mark) != std::string::npos) found.insert(std::stoi(name));
  }
  return found;
}

TEST_F(RunTest, JudgesTheBundledPlugin) {
  const fs::path json = folder_ / "r.json";
  EXPECT_EQ(plugfest({"run", "--rule", "CN-06,XF-06,DP-01", "--seed", "7", "--json", json}), 0) << output();
  const auto results = nlohmann::json::parse(content(json));
  EXPECT_EQ(results["summary"]["pass"], 3);
  EXPECT_EQ(results["runs"].at(0)["seed"], 7);
  EXPECT_EQ(results["runs"].at(0)["rules"].size(), 3u);
  EXPECT_THAT(output(), HasSubstr("3 pass"));
}

TEST_F(RunTest, RendersOneDocumentInAllForms) {
  EXPECT_EQ(
      plugfest({"run", "--plugin", PLUGFEST_MUTANTS "/libnccl-net-posted_size_reported.so", "--rule", "XF-09", "--seed",
                "7", "--junit", folder_ / "r.xml", "--html", folder_ / "r.html", "--markdown", folder_ / "r.md"}),
      1)
      << output();
  EXPECT_THAT(content(folder_ / "r.xml"), HasSubstr("failures=\"1\""));
  EXPECT_THAT(content(folder_ / "r.html"), HasSubstr("test reports the size that was sent"));
  EXPECT_THAT(content(folder_ / "r.md"), HasSubstr("| ❌ fail | XF-09 |"));
}

TEST_F(RunTest, SaysWhatABrokenPluginBrokeAndHowToSeeItAgain) {
  const std::string mutant = PLUGFEST_MUTANTS "/libnccl-net-posted_size_reported.so";
  EXPECT_EQ(plugfest({"run", "--plugin", mutant, "--rule", "XF-09", "--seed", "7"}), 1) << output();
  EXPECT_THAT(output(), HasSubstr("FAIL XF-09"));
  EXPECT_THAT(output(), HasSubstr("last calls:"));
  EXPECT_THAT(output(),
              HasSubstr("again:  " PLUGFEST_PROGRAM " run --plugin " + mutant + " --api v12 --seed 7 --rule XF-09"));
}

TEST_F(RunTest, WaivesWhatIsKnown) {
  const fs::path known = folder_ / "known.yaml";
  const fs::path json = folder_ / "r.json";
  std::ofstream(known)
      << "findings:\n  - {rule: XF-09, subject: '*posted_size_reported.so', reason: broken on purpose}\n";
  EXPECT_EQ(plugfest({"run", "--plugin", PLUGFEST_MUTANTS "/libnccl-net-posted_size_reported.so", "--rule", "XF-09",
                      "--baseline", known, "--repeat", "2", "--json", json}),
            0)
      << output();
  EXPECT_THAT(output(), HasSubstr("known finding: broken on purpose"));
  const auto results = nlohmann::json::parse(content(json));
  EXPECT_EQ(results["summary"]["waived"], 2);
  EXPECT_TRUE(results["flaky"].empty());
}

TEST_F(RunTest, StopsAtTheFirstFailureWhenAskedTo) {
  const fs::path json = folder_ / "r.json";
  EXPECT_EQ(plugfest({"run", "--plugin", PLUGFEST_MUTANTS "/libnccl-net-posted_size_reported.so", "--rule",
                      "XF-09,XF-2?,XF-1?", "--fail-fast", "--json", json}),
            1)
      << output();
  const auto results = nlohmann::json::parse(content(json));
  EXPECT_GE(results["summary"]["fail"], 1);
  EXPECT_GE(results["summary"]["skip"], 1);
  EXPECT_EQ(results["summary"]["missing"], 0);
  EXPECT_EQ(results["interrupted"], false);
}

TEST_F(RunTest, LetsNcclPickTheVersion) {
  const fs::path json = folder_ / "r.json";
  const int exit_code = plugfest({"run", "--loader", "nccl", "--rule", "LD-01", "--json", json});
  if (exit_code == 2 && output().find("plugfest: loader nccl: ") == 0) GTEST_SKIP() << output();
  EXPECT_EQ(exit_code, 0) << output();
  EXPECT_THAT(output(), HasSubstr("NCCL 2.28.9 takes Mesh v11, 2 devices\n"));
  const auto results = nlohmann::json::parse(content(json));
  EXPECT_EQ(results["loader"]["api"], 11);
  EXPECT_EQ(results["loader"]["network"], "Mesh");
  EXPECT_EQ(results["loader"]["devices"], 2);
  EXPECT_THAT(results["loader"]["log"], HasSubstr("Mesh"));
  EXPECT_EQ(results["runs"].at(0)["api"], 11);
}

TEST_F(RunTest, FailsWhenNcclDoesNotGetThePluginStarted) {
  const fs::path json = folder_ / "r.json";
  const int exit_code = plugfest({"run", "--plugin", PLUGFEST_MUTANTS "/libnccl-net-some_versions.so", "--loader",
                                  "nccl", "--rule", "LD-02", "--json", json});
  if (exit_code == 2 && output().find("plugfest: loader nccl: ") == 0) GTEST_SKIP() << output();
  EXPECT_EQ(exit_code, 1) << output();
  EXPECT_THAT(output(), HasSubstr("NCCL's loader: NCCL"));
  const auto results = nlohmann::json::parse(content(json));
  EXPECT_NE(results["loader"]["deviation"], "");
  EXPECT_EQ(results["summary"]["pass"], 1) << "the loader alone decides about the exit code";
}

TEST_F(RunTest, GoesOnWhenALinkIsDownForAWhile) {
  const fs::path script = folder_ / "faults.yaml", json = folder_ / "r.json", trace = folder_ / "t.json";
  std::ofstream(script) << "faults:\n"
                           "  - {on: {rule: XF-06, call: send}, for: 100ms, link: a-c, do: down}\n"
                           "  - {on: {rule: XF-06, call: connect, rank: a}, for: 1ms, host: c, do: freeze}\n";
  EXPECT_EQ(plugfest({"run", "--rule", "XF-06", "--faults", script, "--json", json, "--trace", trace}), 0) << output();
  EXPECT_THAT(output(), HasSubstr("link a-c down"));
  const auto run = nlohmann::json::parse(content(json))["runs"].at(0);
  ASSERT_EQ(run["faults"].size(), 2u);
  EXPECT_EQ(run["faults"].at(0)["fault"], "host c frozen");
  EXPECT_EQ(run["faults"].at(1)["fault"], "link a-c down");
  EXPECT_EQ(run["faults"].at(1)["source"], script.string() + ":2");
  EXPECT_EQ(run["faults"].at(1)["rule"], "XF-06");
  EXPECT_GE(run["faults"].at(1)["end"].get<double>() - run["faults"].at(1)["start"].get<double>(), 0.1);
  EXPECT_EQ(run["rules"].at(0)["faults"].size(), 2u);
  EXPECT_THAT(content(trace), HasSubstr("\"name\":\"link a-c down\""));
}

TEST_F(RunTest, FailsWhenAllPacketsAreLostAndSaysHowToSeeItAgain) {
  EXPECT_EQ(plugfest({"run", "--rule", "XF-06", "--faults", "loss=100%", "--seed", "7", "--timeout-scale", "0.1"}), 1)
      << output();
  EXPECT_THAT(output(), HasSubstr(": loss 100% on every link (--faults)"));
  EXPECT_THAT(output(), HasSubstr(" --faults 'loss=100%' --seed 7 --rule XF-06"));
}

TEST_F(RunTest, TellsThatARankWasKilledOnPurpose) {
  const fs::path script = folder_ / "faults.yaml", json = folder_ / "r.json";
  std::ofstream(script) << "faults:\n  - {on: {rule: XF-06, call: send}, host: c, do: kill}\n";
  EXPECT_EQ(plugfest({"run", "--rule", "XF-06", "--faults", script, "--json", json}), 1) << output();
  const auto rule = nlohmann::json::parse(content(json))["runs"].at(0)["rules"].at(0);
  EXPECT_EQ(rule["verdict"], "crash");
  EXPECT_EQ(rule["faults"].at(0)["fault"], "host c killed");
}

TEST_F(RunTest, IsNoPassWhenAFaultNeverCame) {
  const fs::path script = folder_ / "faults.yaml", json = folder_ / "r.json";
  std::ofstream(script) << "faults:\n  - {on: {rule: CN-06, call: connect, nth: 999999}, host: b, do: kill}\n";
  EXPECT_EQ(plugfest({"run", "--rule", "CN-06", "--faults", script, "--json", json}), 2) << output();
  EXPECT_THAT(output(), HasSubstr("host b killed, CN-06: connect 999999"));
  const auto run = nlohmann::json::parse(content(json))["runs"].at(0);
  EXPECT_EQ(run["rules"].at(0)["verdict"], "pass");
  EXPECT_THAT(run["missed_faults"].at(0)["reason"], HasSubstr("CN-06 made "));
}

TEST_F(RunTest, RunsACommandInsideAHost) {
  EXPECT_EQ(plugfest({"fabric", "exec", "-t", "triangle", "a", "--", "sh", "-c",
                      "ls /sys/class/net /sys/class/infiniband; exit 7"}),
            7);
  EXPECT_THAT(output(), HasSubstr("eth0"));
  EXPECT_THAT(output(), HasSubstr("roce_eth1"));
  EXPECT_EQ(plugfest({"fabric", "exec", "-t", "triangle", "a", "--", "no-such-program"}), 2);
  EXPECT_THAT(output(), HasSubstr("no-such-program"));
}

/// What the machine shows of interfaces and mounts.
std::string visible() {
  std::string names = content("/proc/self/net/dev");
  std::string interfaces;
  for (std::size_t colon = names.find(':'); colon != std::string::npos; colon = names.find(':', colon + 1)) {
    const std::size_t start = names.find_last_of(" \n", colon) + 1;
    interfaces += names.substr(start, colon - start) + " ";
  }
  return interfaces + content("/proc/self/mounts");
}

/// Starts plugfest, waits until its output holds `sign`, kills it, and waits until nothing of it is left.
void kill_when(const std::vector<std::string>& arguments, const std::string& sign, std::size_t least_processes,
               const fs::path& folder) {
  const std::string before = visible();
  std::string mark = "PLUGFEST_TEST_MARK=" + folder.string();
  putenv(mark.data());
  // A pipe whose writing end every process of the run inherits would do too, but ranks close what is not theirs.
  const pid_t controller = start(arguments, folder / "output");
  unsetenv("PLUGFEST_TEST_MARK");
  while (content(folder / "output").find(sign) == std::string::npos) {
    ASSERT_EQ(waitpid(controller, nullptr, WNOHANG), 0) << content(folder / "output");
    usleep(1000);
  }
  // Or nothing would be shown. Between two rules there may be fewer for a moment.
  while (marked(mark).size() < least_processes) usleep(1000);
  kill(controller, SIGKILL);
  EXPECT_EQ(wait_for(controller), 128 + SIGKILL);
  while (!marked(mark).empty()) usleep(1000);  // the kernel ends them; ctest's time limit is the deadline
  EXPECT_EQ(visible(), before);
}

TEST_F(RunTest, LeavesNothingWhenItIsKilledAmidTheRules) {
  // The program, the two processes of its sandbox, and the two ranks that served CN-06 and wait for the next rule. Only
  // a signal ends so many repetitions.
  kill_when({"run", "--seed", "7", "--repeat", "100000", "--json", folder_ / "r.json"}, "CN-06", 5, folder_);
  EXPECT_FALSE(fs::exists(folder_ / "r.json")) << "results appear whole or not at all";
}

TEST_F(RunTest, LeavesNothingOfACommandWhenItIsKilled) {
  kill_when({"fabric", "exec", "-t", "triangle", "a", "--", "sh", "-c", "echo ready; exec sleep 1000"}, "ready", 3,
            folder_);
}

TEST_F(RunTest, EndsEarlyWithWhatItHasOnCtrlC) {
  const fs::path json = folder_ / "r.json";
  const pid_t controller = start({"run", "--seed", "7", "--repeat", "100000", "--json", json}, folder_ / "output");
  while (output().find("pass") == std::string::npos) {
    ASSERT_EQ(waitpid(controller, nullptr, WNOHANG), 0) << output();
    usleep(1000);
  }
  kill(controller, SIGINT);
  EXPECT_EQ(wait_for(controller), 130) << output();
  const auto results = nlohmann::json::parse(content(json));
  EXPECT_EQ(results["interrupted"], true);
  EXPECT_GE(results["summary"]["pass"], 1);
}

TEST_F(RunTest, DoesNotWaitForACallThatHangsOnCtrlC) {
  // Its connect waits for an accept that CN-06 withholds, and may take all day.
  const fs::path json = folder_ / "r.json";
  const pid_t controller = start({"run", "--plugin", PLUGFEST_MUTANTS "/libnccl-net-connect_waits_for_accept.so",
                                  "--rule", "CN-06", "--timeout-scale", "10000", "--json", json},
                                 folder_ / "output");
  while (output().find("1 rules") == std::string::npos) {
    ASSERT_EQ(waitpid(controller, nullptr, WNOHANG), 0) << output();
    usleep(1000);
  }
  usleep(200000);  // for the call to begin; what comes before it ends early too
  kill(controller, SIGINT);
  EXPECT_EQ(wait_for(controller), 130) << output();
  const auto results = nlohmann::json::parse(content(json));
  EXPECT_EQ(results["summary"]["missing"], 1);
}

}  // namespace
}  // namespace plugfest::cli
