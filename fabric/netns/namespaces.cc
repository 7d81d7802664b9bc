#include "fabric/netns/namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string_view>

#include "fabric/system/throw_errno.h"

namespace plugfest::netns {
namespace {

// Writes a setting of /proc/sys/net in the thread's network namespace. Returns an errno.
int set_sysctl(const char* name, std::string_view value) {
  const Descriptor file(open(fmt::format("/proc/sys/net/{}", name).c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || write(file.get(), value.data(), value.size()) < 0) return errno;
  return 0;
}

}  // namespace

Descriptor open_current_namespace(const char* kind) {
  Descriptor fd(open(fmt::format("/proc/thread-self/ns/{}", kind).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw_errno(fmt::format("cannot open the current namespace ({})", kind));
  return fd;
}

void throw_no_namespace(const char* kind) {
  const bool network = std::string_view(kind) == "net";
  if (errno != ENOSPC) throw_errno(network ? "network namespace" : "mount namespace");
  throw std::runtime_error(fmt::format(
      "cannot create another {} namespace: the limit user.max_{}_namespaces{} is reached: raise it with sysctl, use "
      "fewer hosts, or end other fabrics",
      network ? "network" : "mount", kind, network ? "" : " or fs.mount-max"));
}

Descriptor create_network_namespace(Forwarding forwarding) {
  if (unshare(CLONE_NEWNET) != 0) throw_no_namespace("net");
  // A new namespace inherits some IPv4 settings of the machine. Settings that the kernel lacks are ignored.
  set_sysctl("ipv4/conf/all/rp_filter", "0");
  set_sysctl("ipv4/conf/default/rp_filter", "0");
  // No other host can have a duplicate address or be a router, so the kernel need not wait for one.
  set_sysctl("ipv6/conf/default/accept_dad", "0");
  set_sysctl("ipv6/conf/default/router_solicitations", "0");

  const bool forwards = forwarding == Forwarding::kYes;
  errno = set_sysctl("ipv4/ip_forward", forwards ? "1" : "0");
  if (errno != 0 && forwards) throw_errno("net.ipv4.ip_forward");
  if (forwards) {
    errno = set_sysctl("ipv4/fib_multipath_hash_policy", "1");  // include ports, so that queue pairs use all paths
    if (errno != 0 && errno != ENOENT) throw_errno("net.ipv4.fib_multipath_hash_policy");
  }
  return open_current_namespace("net");
}

void enter_namespace(const Descriptor& fd, int kind) {
  if (setns(fd.get(), kind) != 0) throw_errno("cannot enter a namespace");
}

}  // namespace plugfest::netns
