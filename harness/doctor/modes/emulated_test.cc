#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/doctor/modes/modes.h"
#include "harness/doctor/testing/fake_machine.h"

namespace plugfest::doctor {
namespace {

using testing::HasSubstr;

TEST(DoctorFabric, NamesTheSettingOfUbuntu2404) {
  FakeMachine ubuntu;
  ubuntu.file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  netns::NamespaceLimits limits;
  limits.apparmor_restricts = 1;
  ubuntu.trials.sandbox = [&](bool) {
    return SandboxTrial{.restriction = explain_restriction(netns::SandboxStep::kIdentityMap, EPERM, limits)};
  };
  const auto findings = examine_fabric(ubuntu.machine());
  const Finding& it = named(findings, "namespaces");
  EXPECT_EQ(it.state, State::kBad);
  EXPECT_EQ(it.text, "user namespaces are forbidden here (AppArmor): run as root; --nic loopback needs no namespaces");
  EXPECT_EQ(it.mend, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
  EXPECT_FALSE(has(findings, "ordinary users")) << "reported once";
}

TEST(DoctorFabric, TellsRootAboutRestrictionsOfOrdinaryUsers) {
  FakeMachine ubuntu;
  ubuntu.root_user();
  ubuntu.file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  const auto findings = examine_fabric(ubuntu.machine());
  EXPECT_EQ(named(findings, "namespaces").state, State::kGood);
  EXPECT_EQ(named(findings, "ordinary users").mend, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
}

TEST(DoctorFabric, AcceptsAMachineWithoutProc) {
  FakeMachine container;
  container.remove("/proc");
  container.trials.sandbox = [](bool) { return SandboxTrial{.restriction = {}, .own_pid_namespace = false}; };
  const auto findings = examine_fabric(container.machine());
  EXPECT_THAT(named(findings, "namespaces").text, HasSubstr("survive a SIGKILL"));
  EXPECT_EQ(named(findings, "max_user_namespaces").text, "user.max_user_namespaces cannot be read");
  EXPECT_EQ(named(findings, "receive buffers").state, State::kNote);
}

TEST(DoctorFabric, NamesSmallLimitsAndTheCommandsThatRaiseThem) {
  FakeMachine small;
  small.file("/proc/sys/user/max_net_namespaces", "16\n");
  const auto findings = examine_fabric(small.machine());
  EXPECT_EQ(named(findings, "max_net_namespaces").mend, "sudo sysctl -w user.max_net_namespaces=15000");
  EXPECT_EQ(named(findings, "open files").text, "up to 524288");
  EXPECT_EQ(named(findings, "receive buffers").mend, "sudo sysctl -w net.core.rmem_max=4194304");
  small.limits("8388608", "8388608", "1024", "1024");
  EXPECT_THAT(named(examine_fabric(small.machine()), "open files").mend, HasSubstr("prlimit --pid $$"));
}

TEST(DoctorFabric, TriesNetemOnlyWhereThatLoadsNoModule) {
  FakeMachine debian;
  bool tried = false;
  debian.trials.sandbox = [&](bool netem) {
    tried = netem;
    return SandboxTrial{.restriction = {}, .netem = netem ? std::optional(true) : std::nullopt};
  };
  EXPECT_EQ(named(examine_fabric(debian.machine()), "netem").state, State::kGood);
  EXPECT_TRUE(tried) << "no folder of modules: built in or absent";

  debian.file("/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/net/sched/sch_netem.ko:\n");
  EXPECT_EQ(named(examine_fabric(debian.machine()), "netem").state, State::kGood);
  EXPECT_FALSE(tried) << "the trial would load it";

  debian.file("/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/net/sched/sch_tbf.ko:\n");
  EXPECT_EQ(named(examine_fabric(debian.machine()), "netem").state, State::kNote);
  EXPECT_FALSE(tried);
}

TEST(DoctorLoopback, NeedsLoopbackAddresses) {
  FakeMachine machine;
  EXPECT_EQ(named(examine_loopback(machine.machine()), "addresses").state, State::kGood);
  machine.trials.loopback = [] { return std::string("lo is down: run\n    sudo ip link set lo up"); };
  const auto findings = examine_loopback(machine.machine());
  EXPECT_EQ(named(findings, "addresses").state, State::kBad);
  EXPECT_EQ(named(findings, "addresses").text, "lo is down");
  EXPECT_EQ(named(findings, "addresses").mend, "sudo ip link set lo up");
}

TEST(DoctorFabric, ReportsAnEnforcingSelinux) {
  FakeMachine fedora;
  EXPECT_FALSE(has(examine_fabric(fedora.machine()), "SELinux"));
  fedora.file("/sys/fs/selinux/enforce", "1");
  EXPECT_EQ(named(examine_fabric(fedora.machine()), "SELinux").state, State::kNote);
  fedora.file("/sys/fs/selinux/enforce", "0");
  EXPECT_EQ(named(examine_fabric(fedora.machine()), "SELinux").text, "permissive");
}

}  // namespace
}  // namespace plugfest::doctor
