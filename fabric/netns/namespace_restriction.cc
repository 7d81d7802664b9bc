// Tries the known causes of a refused namespace, the most likely one first.
#include "fabric/netns/namespace_restriction.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace plugfest::netns {
namespace {

long read_number(const char* path) {
  std::ifstream file(path);
  long number = -1;
  return file >> number ? number : -1;
}

bool under_seccomp_filter() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Seccomp:")) return line.ends_with("2");
  return false;
}

NamespaceRestriction lifted_by(std::string_view cause, std::string_view setting) {
  return {.cause = fmt::format("user namespaces are forbidden here ({})", cause),
          .command = fmt::format("sudo sysctl -w {}", setting),
          .alternative = "run as root"};
}

}  // namespace

NamespaceLimits NamespaceLimits::read() {
  NamespaceLimits limits;
  limits.apparmor_restricts = read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
  limits.unprivileged_clone = read_number("/proc/sys/kernel/unprivileged_userns_clone");
  limits.max_user_namespaces = read_number("/proc/sys/user/max_user_namespaces");
  limits.max_network_namespaces = read_number("/proc/sys/user/max_net_namespaces");
  limits.user_namespaces_known = access("/proc/self/ns/user", F_OK) == 0;
  limits.seccomp_filter = under_seccomp_filter();
  limits.root = geteuid() == 0;
  return limits;
}

std::string NamespaceRestriction::text() const {
  if (command.empty()) return alternative.empty() ? cause : fmt::format("{}: {}", cause, alternative);
  return fmt::format("{}: run\n    {}{}", cause, command, alternative.empty() ? "" : "\n  or " + alternative);
}

NamespaceRestriction explain_restriction(SandboxStep step, int error, const NamespaceLimits& limits) {
  const bool denied = error == EPERM || error == EACCES;
  if (step == SandboxStep::kUserNamespace) {
    if (!limits.user_namespaces_known)
      return {.cause = "this kernel has no user namespaces (CONFIG_USER_NS)", .alternative = "run as root"};
    if (error == ENOSPC && limits.max_user_namespaces == 0)
      return lifted_by("user.max_user_namespaces is 0", "user.max_user_namespaces=15000");
    if (error == ENOSPC) {
      return {.cause = fmt::format("cannot create another user namespace: user.max_user_namespaces ({}) or the nesting "
                                   "limit (32) is reached",
                                   limits.max_user_namespaces)};
    }
  }
  // Recent Ubuntu creates the user namespace and refuses its use; older versions refuse to create it.
  if (denied && limits.apparmor_restricts == 1 && !limits.root)
    return lifted_by("AppArmor", "kernel.apparmor_restrict_unprivileged_userns=0");
  if (step == SandboxStep::kUserNamespace && denied) {
    if (limits.unprivileged_clone == 0)
      return lifted_by("kernel.unprivileged_userns_clone is 0", "kernel.unprivileged_userns_clone=1");
    if (limits.seccomp_filter)
      return {.cause = "user namespaces are forbidden here (seccomp filter, as containers have)",
              .alternative = "start the container with --privileged, or with --security-opt seccomp=unconfined"};
    return {.cause = "user namespaces are forbidden here (a security module, or a chroot)",
            .alternative = "run as root outside it"};
  }
  if (step == SandboxStep::kIdentityMap && denied && limits.root)
    return {.cause = "user namespaces are forbidden here (this root has neither CAP_SYS_ADMIN nor CAP_SETFCAP)",
            .alternative = "start the container with --privileged, or run as an ordinary user"};
  if (step == SandboxStep::kNamespaces && error == ENOSPC) {
    return {.cause = fmt::format("cannot create more namespaces: one of the limits user.max_{{net,mnt,pid}}_namespaces "
                                 "is reached (user.max_net_namespaces is {})",
                                 limits.max_network_namespaces),
            .alternative = "raise it with sysctl, or end other fabrics"};
  }
  const char* what = step == SandboxStep::kUserNamespace ? "user namespace"
                     : step == SandboxStep::kIdentityMap ? "identity map of the user namespace"
                                                         : "mount, network and process namespaces";
  return {.cause = fmt::format("cannot create the sandbox: {}: {}", what, std::strerror(error))};
}

}  // namespace plugfest::netns
