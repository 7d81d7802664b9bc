#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/doctor/modes/modes.h"
#include "harness/doctor/testing/machine_on_paper.h"

namespace plugfest::doctor {
namespace {

using testing::HasSubstr;

TEST(DoctorFabric, NamesTheSettingOfUbuntu2404) {
  MachineOnPaper ubuntu;
  ubuntu.file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  netns::NamespaceLimits limits;
  limits.apparmor_restricts = 1;
  ubuntu.trials.sandbox = [&](bool) {
    return SandboxTrial{.obstacle = explain_restriction(netns::SandboxStep::kIdentityMap, EPERM, limits)};
  };
  const auto findings = examine_fabric(ubuntu.machine());
  const Finding& it = named(findings, "namespaces");
  EXPECT_EQ(it.state, State::kBad);
  EXPECT_EQ(it.text, "user namespaces are forbidden here (AppArmor): run as root; --nic loopback needs none");
  EXPECT_EQ(it.mend, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
  EXPECT_FALSE(has(findings, "ordinary users")) << "said once";
}

TEST(DoctorFabric, TellsRootWhatOthersWillMeet) {
  MachineOnPaper ubuntu;
  ubuntu.root_user();
  ubuntu.file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  const auto findings = examine_fabric(ubuntu.machine());
  EXPECT_EQ(named(findings, "namespaces").state, State::kGood);
  EXPECT_EQ(named(findings, "ordinary users").mend, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
}

TEST(DoctorFabric, CopesWithAMachineThatShowsNothing) {
  MachineOnPaper container;
  container.remove("/proc");
  container.trials.sandbox = [](bool) { return SandboxTrial{.obstacle = {}, .own_processes = false}; };
  const auto findings = examine_fabric(container.machine());
  EXPECT_THAT(named(findings, "namespaces").text, HasSubstr("outlives a SIGKILL"));
  EXPECT_EQ(named(findings, "max_user_namespaces").text, "not shown here");
  EXPECT_EQ(named(findings, "receive buffers").state, State::kNote);
}

TEST(DoctorFabric, SaysWhichLimitIsSmallAndHowToRaiseIt) {
  MachineOnPaper small;
  small.file("/proc/sys/user/max_net_namespaces", "16\n");
  const auto findings = examine_fabric(small.machine());
  EXPECT_EQ(named(findings, "max_net_namespaces").mend, "sudo sysctl -w user.max_net_namespaces=15000");
  EXPECT_EQ(named(findings, "open files").text, "up to 524288");
  EXPECT_EQ(named(findings, "receive buffers").mend, "sudo sysctl -w net.core.rmem_max=4194304");
  small.limits("8388608", "8388608", "1024", "1024");
  EXPECT_THAT(named(examine_fabric(small.machine()), "open files").mend, HasSubstr("prlimit --pid $$"));
}

TEST(DoctorFabric, TriesNetemOnlyWhereThatLoadsNoModule) {
  MachineOnPaper debian;
  bool tried = false;
  debian.trials.sandbox = [&](bool netem) {
    tried = netem;
    return SandboxTrial{.obstacle = {}, .netem = netem ? std::optional(true) : std::nullopt};
  };
  EXPECT_EQ(named(examine_fabric(debian.machine()), "netem").state, State::kGood);
  EXPECT_TRUE(tried) << "no folder of modules: built in or not there";

  debian.file("/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/net/sched/sch_netem.ko:\n");
  EXPECT_EQ(named(examine_fabric(debian.machine()), "netem").state, State::kGood);
  EXPECT_FALSE(tried) << "the trial would load it";

  debian.file("/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/net/sched/sch_tbf.ko:\n");
  EXPECT_EQ(named(examine_fabric(debian.machine()), "netem").state, State::kNote);
  EXPECT_FALSE(tried);
}

TEST(DoctorLoopback, NeedsAddresses) {
  MachineOnPaper machine;
  EXPECT_EQ(named(examine_loopback(machine.machine()), "addresses").state, State::kGood);
  machine.trials.loopback = [] { return std::string("lo is down: run\n    sudo ip link set lo up"); };
  const auto findings = examine_loopback(machine.machine());
  EXPECT_EQ(named(findings, "addresses").state, State::kBad);
  EXPECT_EQ(named(findings, "addresses").text, "lo is down");
  EXPECT_EQ(named(findings, "addresses").mend, "sudo ip link set lo up");
}

TEST(DoctorFabric, MentionsAnEnforcingSelinux) {
  MachineOnPaper fedora;
  EXPECT_FALSE(has(examine_fabric(fedora.machine()), "SELinux"));
  fedora.file("/sys/fs/selinux/enforce", "1");
  EXPECT_EQ(named(examine_fabric(fedora.machine()), "SELinux").state, State::kNote);
  fedora.file("/sys/fs/selinux/enforce", "0");
  EXPECT_EQ(named(examine_fabric(fedora.machine()), "SELinux").text, "permissive");
}

}  // namespace
}  // namespace plugfest::doctor
