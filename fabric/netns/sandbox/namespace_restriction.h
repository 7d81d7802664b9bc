// Why a machine refuses namespaces, in words that say what to do about it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

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

/// What stands in the way, and how it is lifted.
struct NamespaceRestriction {
  std::string cause;        ///< "user namespaces are forbidden here (AppArmor)"
  std::string command;      ///< that lifts it; empty where none does
  std::string alternative;  ///< what else helps, "run as root"; may be empty

  /// The message for a user.
  std::string text() const;
};

/// `error`: the errno of the step.
NamespaceRestriction explain_restriction(SandboxStep step, int error, const NamespaceLimits& limits);

/// A sandbox that could not be made; what() is the obstacle's text.
class NamespacesForbidden : public std::runtime_error {
 public:
  explicit NamespacesForbidden(NamespaceRestriction it) : std::runtime_error(it.text()), restriction(std::move(it)) {}

  NamespaceRestriction restriction;
};

}  // namespace plugfest::netns
