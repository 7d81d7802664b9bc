// Modes fabric, loopback, rxe and vm on fake machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/doctor/examine.h"
#include "harness/doctor/fake_machine.h"

namespace plugfest::doctor {
namespace {

using testing::HasSubstr;

TEST(DoctorFabric, NamesTheSettingOfUbuntu2404) {
  FakeMachine ubuntu;
  ubuntu.file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  netns::NamespaceLimits limits;
  limits.apparmor_restricts = 1;
  ubuntu.trials.sandbox = [&](bool) {
    return SandboxTrial{.restriction =
                            Restriction{explain_restriction(netns::SandboxStep::kIdentityMap, EPERM, limits)}};
  };
  const auto findings = examine_fabric(ubuntu.machine());
  const Finding& finding = named(findings, "namespaces");
  EXPECT_EQ(finding.state, State::kBad);
  EXPECT_EQ(finding.text,
            "user namespaces are forbidden here (AppArmor): run as root; --nic loopback needs no namespaces");
  EXPECT_EQ(finding.fix, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
  EXPECT_FALSE(has(findings, "ordinary users")) << "reported once";
}

TEST(DoctorFabric, TellsRootAboutRestrictionsOfOrdinaryUsers) {
  FakeMachine ubuntu;
  ubuntu.root_user();
  ubuntu.file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  const auto findings = examine_fabric(ubuntu.machine());
  EXPECT_EQ(named(findings, "namespaces").state, State::kGood);
  EXPECT_EQ(named(findings, "ordinary users").fix, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
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
  EXPECT_EQ(named(findings, "max_net_namespaces").fix, "sudo sysctl -w user.max_net_namespaces=15000");
  EXPECT_EQ(named(findings, "open files").text, "up to 524288");
  EXPECT_EQ(named(findings, "receive buffers").fix, "sudo sysctl -w net.core.rmem_max=4194304");
  small.limits("8388608", "8388608", "1024", "1024");
  EXPECT_THAT(named(examine_fabric(small.machine()), "open files").fix, HasSubstr("prlimit --pid $$"));
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
  EXPECT_EQ(named(findings, "addresses").fix, "sudo ip link set lo up");
}

TEST(DoctorFabric, ReportsAnEnforcingSelinux) {
  FakeMachine fedora;
  EXPECT_FALSE(has(examine_fabric(fedora.machine()), "SELinux"));
  fedora.file("/sys/fs/selinux/enforce", "1");
  EXPECT_EQ(named(examine_fabric(fedora.machine()), "SELinux").state, State::kNote);
  fedora.file("/sys/fs/selinux/enforce", "0");
  EXPECT_EQ(named(examine_fabric(fedora.machine()), "SELinux").text, "permissive");
}

using testing::HasSubstr;

constexpr const char* kModules = "/lib/modules/6.1.0-18-amd64/modules.dep";
constexpr const char* kRxe =
    "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko: kernel/drivers/infiniband/core/ib_core.ko\n";

TEST(DoctorRxe, DistinguishesStatesOfTheModule) {
  FakeMachine debian;
  debian.root_user();
  EXPECT_EQ(named(examine_rxe(debian.machine()), "rdma_rxe").state, State::kBad);

  debian.file(kModules, kRxe);
  EXPECT_EQ(named(examine_rxe(debian.machine()), "rdma_rxe").text, "installed, not loaded");
  EXPECT_EQ(named(examine_rxe(debian.machine()), "rdma_rxe").fix, "sudo modprobe rdma_rxe");

  debian.file("/etc/modprobe.d/no-rxe.conf", "# not here\nblacklist rdma_rxe\n");
  EXPECT_THAT(named(examine_rxe(debian.machine()), "rdma_rxe").text, HasSubstr("blacklisted in /etc/modprobe.d"));

  debian.file("/proc/sys/kernel/modules_disabled", "1\n");
  EXPECT_THAT(named(examine_rxe(debian.machine()), "rdma_rxe").text, HasSubstr("before the next boot"));

  debian.file("/sys/module/rdma_rxe/initstate", "live\n");
  EXPECT_EQ(named(examine_rxe(debian.machine()), "rdma_rxe").state, State::kGood);
}

TEST(DoctorRxe, NamesThePackageOfTheModule) {
  FakeMachine machine;
  machine.kernel("6.1.0-18-cloud-amd64");
  EXPECT_EQ(named(examine_rxe(machine.machine()), "rdma_rxe").fix,
            "sudo apt-get install linux-image-amd64   # then boot it");
  machine.file("/etc/os-release", "ID=ubuntu\n");
  machine.kernel("6.8.0-45-generic");
  EXPECT_EQ(named(examine_rxe(machine.machine()), "rdma_rxe").fix,
            "sudo apt-get install linux-modules-extra-6.8.0-45-generic");
  machine.kernel("6.11.0-1015-azure");
  EXPECT_EQ(named(examine_rxe(machine.machine()), "rdma_rxe").fix, "") << "no package has it";
}

TEST(DoctorRxe, NeedsRootInTheInitialUserNamespace) {
  FakeMachine machine;
  EXPECT_THAT(named(examine_rxe(machine.machine()), "privilege").fix, HasSubstr("sudo "));
  machine.root_user();
  EXPECT_EQ(named(examine_rxe(machine.machine()), "privilege").state, State::kGood);
  machine.file("/proc/self/uid_map", "         0       1000          1\n");
  EXPECT_THAT(named(examine_rxe(machine.machine()), "privilege").text, HasSubstr("containers"));
}

TEST(DoctorRxe, NeedsAUserSpaceDriver) {
  FakeMachine machine;
  EXPECT_EQ(named(examine_rxe(machine.machine()), "verbs providers").fix, "sudo apt-get install ibverbs-providers");
  machine.file("/etc/libibverbs.d/rxe.driver", "driver rxe\n");
  EXPECT_EQ(named(examine_rxe(machine.machine()), "verbs providers").state, State::kGood);
}

TEST(DoctorRxe, SupportsNamespacesSinceLinux71) {
  FakeMachine machine;
  for (const char* old : {"5.15.0", "6.18.2", "7.0.9"}) {
    machine.kernel(old);
    EXPECT_EQ(named(examine_rxe(machine.machine()), "rxe in namespaces").state, State::kNote) << old;
  }
  for (const char* recent : {"7.1.0-rc1", "7.10.1", "8.0.0"}) {
    machine.kernel(recent);
    EXPECT_EQ(named(examine_rxe(machine.machine()), "rxe in namespaces").state, State::kGood) << recent;
  }
}

TEST(DoctorVm, NeedsQemuButNotKvm) {
  FakeMachine machine;
  EXPECT_EQ(named(examine_vm(machine.machine()), "QEMU").fix, "sudo apt-get install qemu-system-x86");
  machine.program("qemu-system-x86_64");
  const auto findings = examine_vm(machine.machine());
  EXPECT_EQ(named(findings, "QEMU").state, State::kGood);
  EXPECT_EQ(named(findings, "KVM").state, State::kNote);
  machine.trials.kvm = [] { return KvmTrial{.state = KvmTrial::State::kNoAccess}; };
  EXPECT_THAT(named(examine_vm(machine.machine()), "KVM").fix, HasSubstr("usermod -aG kvm"));
  machine.trials.kvm = [] { return KvmTrial{.state = KvmTrial::State::kRuns}; };
  EXPECT_EQ(named(examine_vm(machine.machine()), "KVM").state, State::kGood);
}

TEST(DoctorVm, FindsTheKernelThatHasRxe) {
  FakeMachine machine;
  machine.file("/boot/vmlinuz-6.1.0-18-cloud-amd64", "");
  machine.file("/boot/vmlinuz-6.1.0-18-amd64", "");
  EXPECT_EQ(named(examine_vm(machine.machine()), "guest kernel").state, State::kNote);
  machine.file("/home/user/.cache/plugfest/kernel/boot/vmlinuz-6.1.0-20-amd64", "");
  const std::string rxe = "/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko";
  machine.file("/home/user/.cache/plugfest/kernel/lib/modules/6.1.0-20-amd64" + rxe, "");
  EXPECT_EQ(named(examine_vm(machine.machine()), "guest kernel").text,
            "/home/user/.cache/plugfest/kernel/boot/vmlinuz-6.1.0-20-amd64, with rdma_rxe");
  machine.file("/lib/modules/6.1.0-18-amd64" + rxe, "");
  EXPECT_EQ(named(examine_vm(machine.machine()), "guest kernel").text, "/boot/vmlinuz-6.1.0-18-amd64, with rdma_rxe");
}

}  // namespace
}  // namespace plugfest::doctor
