// Modes rxe and vm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/doctor/modes/modes.h"
#include "harness/doctor/testing/fake_machine.h"

namespace plugfest::doctor {
namespace {

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
  EXPECT_EQ(named(examine_rxe(debian.machine()), "rdma_rxe").mend, "sudo modprobe rdma_rxe");

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
  EXPECT_EQ(named(examine_rxe(machine.machine()), "rdma_rxe").mend,
            "sudo apt-get install linux-image-amd64   # then boot it");
  machine.file("/etc/os-release", "ID=ubuntu\n");
  machine.kernel("6.8.0-45-generic");
  EXPECT_EQ(named(examine_rxe(machine.machine()), "rdma_rxe").mend,
            "sudo apt-get install linux-modules-extra-6.8.0-45-generic");
  machine.kernel("6.11.0-1015-azure");
  EXPECT_EQ(named(examine_rxe(machine.machine()), "rdma_rxe").mend, "") << "no package has it";
}

TEST(DoctorRxe, NeedsRootInTheInitialUserNamespace) {
  FakeMachine machine;
  EXPECT_THAT(named(examine_rxe(machine.machine()), "privilege").mend, HasSubstr("sudo "));
  machine.root_user();
  EXPECT_EQ(named(examine_rxe(machine.machine()), "privilege").state, State::kGood);
  machine.file("/proc/self/uid_map", "         0       1000          1\n");
  EXPECT_THAT(named(examine_rxe(machine.machine()), "privilege").text, HasSubstr("containers"));
}

TEST(DoctorRxe, NeedsAUserSpaceDriver) {
  FakeMachine machine;
  EXPECT_EQ(named(examine_rxe(machine.machine()), "verbs providers").mend, "sudo apt-get install ibverbs-providers");
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
  EXPECT_EQ(named(examine_vm(machine.machine()), "QEMU").mend, "sudo apt-get install qemu-system-x86");
  machine.program("qemu-system-x86_64");
  const auto findings = examine_vm(machine.machine());
  EXPECT_EQ(named(findings, "QEMU").state, State::kGood);
  EXPECT_EQ(named(findings, "KVM").state, State::kNote);
  machine.trials.kvm = [] { return KvmTrial{KvmTrial::State::kNoAccess, ""}; };
  EXPECT_THAT(named(examine_vm(machine.machine()), "KVM").mend, HasSubstr("usermod -aG kvm"));
  machine.trials.kvm = [] { return KvmTrial{KvmTrial::State::kRuns, ""}; };
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
