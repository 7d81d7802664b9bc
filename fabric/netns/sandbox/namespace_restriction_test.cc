// Error messages for machines that refuse namespaces.
#include "fabric/netns/sandbox/namespace_restriction.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <string>

#include "fabric/netns/testing/program.h"
#include "fabric/netns/testing/refuse_namespaces.h"

namespace plugfest::netns {
namespace {

NamespaceLimits ordinary_user() {
  NamespaceLimits limits;
  limits.max_user_namespaces = 15000;
  limits.max_network_namespaces = 15000;
  return limits;
}

TEST(NamespaceRestrictionTest, NamesAppArmor) {
  NamespaceLimits limits = ordinary_user();
  limits.apparmor_restricts = 1;
  const std::string expected =
      "user namespaces are forbidden here (AppArmor): run\n"
      "    sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n"
      "  or run as root";
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, EPERM, limits).text(), expected);
  EXPECT_EQ(explain_restriction(SandboxStep::kIdentityMap, EPERM, limits).text(), expected);
  EXPECT_EQ(explain_restriction(SandboxStep::kNamespaces, EACCES, limits).text(), expected);
}

TEST(NamespaceRestrictionTest, NamesTheKernelSetting) {
  NamespaceLimits limits = ordinary_user();
  limits.max_user_namespaces = 0;
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, ENOSPC, limits).text(),
            "user namespaces are forbidden here (user.max_user_namespaces is 0): run\n"
            "    sudo sysctl -w user.max_user_namespaces=15000\n"
            "  or run as root");
  limits = ordinary_user();
  limits.unprivileged_clone = 0;
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, EPERM, limits).text(),
            "user namespaces are forbidden here (kernel.unprivileged_userns_clone is 0): run\n"
            "    sudo sysctl -w kernel.unprivileged_userns_clone=1\n"
            "  or run as root");
  limits = ordinary_user();
  limits.user_namespaces_known = false;
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, EINVAL, limits).text(),
            "this kernel has no user namespaces (CONFIG_USER_NS): run as root");
}

TEST(NamespaceRestrictionTest, NamesTheReachedLimit) {
  EXPECT_EQ(
      explain_restriction(SandboxStep::kUserNamespace, ENOSPC, ordinary_user()).text(),
      "cannot create another user namespace: user.max_user_namespaces (15000) or the nesting limit (32) is reached");
  EXPECT_EQ(explain_restriction(SandboxStep::kNamespaces, ENOSPC, ordinary_user()).text(),
            "cannot create more namespaces: one of the limits user.max_{net,mnt,pid}_namespaces is reached "
            "(user.max_net_namespaces is 15000): raise it with sysctl, or end other fabrics");
}

TEST(NamespaceRestrictionTest, NamesMissingCapabilitiesOfRoot) {
  NamespaceLimits limits = ordinary_user();
  limits.root = true;
  EXPECT_EQ(explain_restriction(SandboxStep::kIdentityMap, EPERM, limits).text(),
            "user namespaces are forbidden here (this root has neither CAP_SYS_ADMIN nor CAP_SETFCAP): start the "
            "container with "
            "--privileged, or run as an ordinary user");
}

TEST(NamespaceRestrictionTest, NamesStepAndReasonOfAnUnknownCause) {
  EXPECT_EQ(explain_restriction(SandboxStep::kNamespaces, ENOMEM, ordinary_user()).text(),
            "cannot create the sandbox: mount, network and process namespaces: Cannot allocate memory");
}

TEST(NamespaceRestrictionTest, DetectsASeccompFilter) {
  const SandboxExecCopy copy;
  Program program({copy.path(), "true"}, [] {
    become_ordinary_user();
    refuse_namespaces();
  });
  EXPECT_EQ(
      program.read_rest(),
      "plugfest: user namespaces are forbidden here (seccomp filter, as containers have): start the container with "
      "--privileged, or with --security-opt seccomp=unconfined\n");
  EXPECT_EQ(WEXITSTATUS(program.wait_status()), 2);
}

TEST(NamespaceRestrictionTest, DetectsDisabledUserNamespaces) {
  // Root of a user namespace can lower its limit. Without capabilities, that root needs another user namespace.
  const SandboxExecCopy copy;
  const std::string program = copy.path();
  const std::string script =
      "echo 0 >/proc/sys/user/max_user_namespaces; setpriv --bounding-set=-all --inh-caps=-all " + program;
  Program nested({program, "sh", "-c", script + " true"}, become_ordinary_user);
  EXPECT_EQ(nested.read_rest(),
            "plugfest: user namespaces are forbidden here (user.max_user_namespaces is 0): run\n"
            "    sudo sysctl -w user.max_user_namespaces=15000\n"
            "  or run as root\n");
  EXPECT_EQ(WEXITSTATUS(nested.wait_status()), 2);
}

}  // namespace
}  // namespace plugfest::netns
