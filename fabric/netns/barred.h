// Why a machine refuses namespaces, in words that say what to do about it.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::netns {

/// What the kernel says about namespaces on this machine; -1 where it has no such setting.
struct NamespaceLimits {
  long apparmor_restricts = -1;       ///< kernel.apparmor_restrict_unprivileged_userns (Ubuntu)
  long unprivileged_clone = -1;       ///< kernel.unprivileged_userns_clone (older Debian)
  long max_user_namespaces = -1;      ///< user.max_user_namespaces
  long max_network_namespaces = -1;   ///< user.max_net_namespaces
  bool user_namespaces_known = true;  ///< the kernel is built with them
  bool seccomp_filter = false;        ///< the process runs under a filter, as in most containers
  bool root = false;                  ///< the process has user id 0, yet lacks the capabilities

  /// Reads them for the calling process. What cannot be read counts as absent.
  static NamespaceLimits read();
};

/// The step that failed on the way into a sandbox.
enum class SandboxStep { kUserNamespace, kIdentityMap, kNamespaces };

/// The message for a user. `error`: the errno of the step. One line that names the cause, or that and the command that
/// lifts it.
std::string explain_barred(SandboxStep step, int error, const NamespaceLimits& limits);

}  // namespace plugfest::netns
