// plugfest run where namespaces are forbidden, and plugins that leave processes or signal plugfest.
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/netns/testing/program.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Finished plugfest_without_namespaces(const std::string& arguments) {
  return plugfest(arguments, netns::refuse_namespaces);
}

TEST(Loopback, IsSuggestedWhereNamespacesAreForbidden) {
  const Finished result = plugfest_without_namespaces("run --rule CN-06");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, StartsWith("plugfest: "));
  EXPECT_THAT(result.output, EndsWith("  or add --nic loopback, which needs no namespaces\n"));
}

TEST(Loopback, TestsThePluginWithoutNamespaces) {
  const Finished result = plugfest_without_namespaces("run --nic loopback --rule CN-06,DP-04,XF-06,ER-04 --seed 7");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(unwrapped(result.output), HasSubstr("triangle, NIC loopback"));
  EXPECT_THAT(result.output, HasSubstr("4 pass"));
}

TEST(Loopback, RunsAllRulesWithoutNamespaces) {
  PLUGFEST_LONG_TEST();
  const Finished result = plugfest_without_namespaces("run --nic loopback");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(Loopback, TestsThePluginBehindABridge) {
  const Finished result = plugfest_without_namespaces("run --nic loopback -t star:4 --rule XF-01,XF-31");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(Loopback, ShowsTheInterfacesOfAHostAlsoFromAFolderWithSpaces) {
  const std::filesystem::path program(PLUGFEST_PROGRAM);
  const ScratchFolder scratch;
  const std::filesystem::path folder = scratch / "a folder";
  std::filesystem::create_directories(folder / "bin");
  for (const char* name : {"plugfest", "plugfest-rank"})
    std::filesystem::copy_file(program.parent_path() / name, folder / "bin" / name);
  std::filesystem::create_symlink(program.parent_path().parent_path() / "lib", folder / "lib");
  output_of(run_shell("TOY_FAULT='refuse lo' '" + (folder / "bin/plugfest").string() +
                      "' run --nic loopback --rule DP-04 --plugin " PLUGFEST_TOY_PLUGIN));
}

TEST(Loopback, NamesUnsupportedTopologies) {
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback -t fat-tree:2").output,
              StartsWith("plugfest: --nic loopback: edge1 is a router, which this NIC kind does not support: "));
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback -t star:300").output,
              HasSubstr("topology star:300 is too large: the limit is 256 subnets of 254 hosts"));
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback --oob").output, HasSubstr("there is no fabric"));
}

// Tests the toy plugin with a fault, as TOY_FAULT names it, by one rule.
Finished test_toy(const std::string& fault, const std::string& options) {
  setenv("TOY_FAULT", fault.c_str(), 1);
  const bool loopback = options.find("loopback") != std::string::npos;
  const Finished result = plugfest("run --plugin " PLUGFEST_TOY_PLUGIN " --rule DP-04 " + options,
                                   loopback ? netns::refuse_namespaces : std::function<void()>());
  unsetenv("TOY_FAULT");
  return result;
}

// For each way in which plugfest finds hosts.
class Containment : public testing::TestWithParam<const char*> {
 protected:
  Containment() {
    if (!background()) {
      prctl(PR_SET_CHILD_SUBREAPER, 1);  // this process becomes the parent of the remaining processes
    } else {
      setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
      EXPECT_EQ(plugfest("fabric up lab").exit_code, 0);
    }
  }
  ~Containment() override {
    if (background()) {
      EXPECT_EQ(plugfest("fabric exec lab a -- ip -o link show eth0 | grep -c eth0").output, "1\n");
      EXPECT_EQ(plugfest("fabric exec lab a -- sh -c 'readlink /proc/[0-9]*/exe | grep plugfest-rank'").output, "")
          << "a process is left in the fabric";
      EXPECT_EQ(plugfest("fabric down lab").output, "lab: down\n");
    }
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
    prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
  static bool background() { return std::string(GetParam()).find("--fabric") != std::string::npos; }

  ScratchFolder folder_;
};

TEST_P(Containment, EndsProcessesThatThePluginLeaves) {
  EXPECT_EQ(test_toy("leave a daemon", GetParam()).exit_code, 0);
  EXPECT_EQ(test_toy("leave a process", GetParam()).exit_code, 0);
}

TEST_P(Containment, ReportsThePluginThatSignalsPlugfest) {
  const Finished everything = test_toy("kill everything", GetParam());
  EXPECT_EQ(everything.exit_code, 1);
  EXPECT_THAT(everything.output,
              AllOf(HasSubstr("init() tried to send SIGKILL to all processes\n"), HasSubstr("1 crash")));
  // The keeper of a background fabric, which is not an ancestor of ranks.
  EXPECT_THAT(test_toy("kill process 2", GetParam()).output, HasSubstr("tried to send SIGKILL to process 2"));
  EXPECT_THAT(test_toy("kill the parent", GetParam()).output, HasSubstr("(plugfest)\n"));
}

TEST_P(Containment, ReportsTheEndOfPlugfestItself) {
  const Finished result = test_toy("kill the parent by its descriptor", GetParam());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("plugfest: the process that runs the rules was ended by SIGKILL, and its "
                                       "results are lost: the plugin, another process or the kernel (out of memory: "
                                       "see dmesg) has killed it\n"));
}

// Drops all privileges.
void become_nobody() {
  constexpr int kNobody = 65534;
  if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(126);
}

TEST(Isolation, KeepsPluginsOfUsersFromTheMemoryOfPlugfest) {
  const std::function<void()> as_user = geteuid() == 0 ? become_nobody : std::function<void()>();
  if (plugfest("--version", as_user).exit_code != 0) GTEST_SKIP() << "other users cannot run " PLUGFEST_PROGRAM;
  output_of(plugfest(
      "run --rule DP-04 --plugin " PLUGFEST_TOY_PLUGIN " --env \"TOY_FAULT=write to the parent's memory\"", as_user));
}

TEST(Isolation, CutsRulesShortAndFindsTheSameRulesBroken) {
  const ScratchFolder folder;
  const std::string command = "run --plugin " PLUGFEST_TOY_PLUGIN
                              " --env 'TOY_FAULT=hang in connect' -t pair --nic loopback --timeout-scale 0.05 --rule "
                              "'CN-0*,XF-0*' --json ";
  const std::string cut = plugfest(command + (folder / "cut.json").string()).output;
  const std::string patient = plugfest(command + (folder / "full.json").string() + " --patient").output;
  EXPECT_THAT(unwrapped(cut), AllOf(HasSubstr("So far, "), HasSubstr(" of them cut short; start with ")));
  EXPECT_LT(cut.find("So far, "), cut.find("last calls:")) << "it is printed during the run";
  EXPECT_THAT(patient, Not(HasSubstr("cut short")));
  const auto summary = [](const std::string& text) {
    const std::size_t start = text.rfind("Toy v11: ");
    return text.substr(start, text.find(" in ", start) - start);
  };
  EXPECT_EQ(summary(cut), summary(patient));
  EXPECT_THAT(content_of(folder / "cut.json"), HasSubstr("\"cut_short\": true"));
}

TEST(Isolation, EndsOnASignalAlthoughThePluginHasStoppedPlugfest) {
  const ScratchFolder folder;
  const pid_t plugfest =
      start_plugfest({"run", "--rule", "DP-04", "--plugin", PLUGFEST_TOY_PLUGIN, "--nic", "loopback"},
                     folder / "output", {"TOY_FAULT=stop the parent by its descriptor"});
  const std::string is_stopped = "ps -o stat= --ppid $(ps -o pid= --ppid " + std::to_string(plugfest) + ") | grep -q T";
  wait_until([&] { return run_shell(is_stopped).exit_code == 0; });
  kill(plugfest, SIGINT);
  EXPECT_EQ(await_exit(plugfest), 2);
  EXPECT_EQ(content_of(folder / "output"),
            "plugfest: the process that runs the rules was stopped, by the plugin " PLUGFEST_TOY_PLUGIN
            " or another process: it was killed 2 s after the signal, and its results are lost\n");
}

INSTANTIATE_TEST_SUITE_P(Hosts, Containment, testing::Values("--nic roce", "--nic loopback", "--fabric lab"),
                         [](const auto& info) {
                           const std::string option = info.param;
                           return option == "--fabric lab" ? "Background"
                                  : option == "--nic roce" ? "Roce"
                                                           : "Loopback";
                         });

}  // namespace
}  // namespace plugfest::cli
