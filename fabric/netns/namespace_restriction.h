// Explains why a machine refuses namespaces and how to allow them.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace plugfest::netns {

/// Settings of this machine that restrict namespaces; -1 where the kernel lacks the setting.
struct NamespaceLimits {
  long apparmor_restricts = -1;       ///< kernel.apparmor_restrict_unprivileged_userns (Ubuntu)
  long unprivileged_clone = -1;       ///< kernel.unprivileged_userns_clone (older Debian)
  long max_user_namespaces = -1;      ///< user.max_user_namespaces
  long max_network_namespaces = -1;   ///< user.max_net_namespaces
  bool user_namespaces_known = true;  ///< the kernel is built with CONFIG_USER_NS
  bool seccomp_filter = false;        ///< the process runs under a seccomp filter, as in most containers
  bool root = false;                  ///< the process has user id 0 but lacks the capabilities

  /// Reads the settings for the calling process. A setting that cannot be read counts as absent.
  static NamespaceLimits read();
};

/// The step of enter_sandbox() that failed.
enum class SandboxStep { kUserNamespace, kIdentityMap, kNamespaces };

/// Why namespaces are refused, and what the user can do.
struct NamespaceRestriction {
  std::string cause;             ///< "user namespaces are forbidden here (AppArmor)"
  std::string command = {};      ///< lifts the restriction; empty if no command does
  std::string alternative = {};  ///< "run as root"; may be empty

  std::string text() const;
};

/// Finds the cause of a failed step. `error`: the errno of the step.
NamespaceRestriction explain_restriction(SandboxStep step, int error, const NamespaceLimits& limits);

/// The machine refuses to create a sandbox; what() is the restriction's text.
class NamespacesForbidden : public std::runtime_error {
 public:
  explicit NamespacesForbidden(NamespaceRestriction reason)
      : std::runtime_error(reason.text()), restriction(std::move(reason)) {}

  NamespaceRestriction restriction;
};

}  // namespace plugfest::netns
