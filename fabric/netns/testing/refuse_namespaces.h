// Simulates a container that forbids user namespaces.
#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iterator>

namespace plugfest::netns {

/// Installs the seccomp filter of container runtimes in this process and its children: unshare(), setns(), mount() and
/// clone() with flags for namespaces fail with EPERM, clone3() with ENOSYS. Exits with code 126 if the filter cannot be
/// installed.
inline void refuse_namespaces() {
  constexpr unsigned kNamespaces =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP;
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 7, 0, SYS_unshare},
      {BPF_JMP | BPF_JEQ | BPF_K, 6, 0, SYS_setns},
      {BPF_JMP | BPF_JEQ | BPF_K, 5, 0, SYS_mount},
      {BPF_JMP | BPF_JEQ | BPF_K, 5, 0, SYS_clone3},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 2, SYS_clone},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args[0])},
      {BPF_JMP | BPF_JSET | BPF_K, 1, 0, kNamespaces},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
  };
  sock_fprog filter = {std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    _exit(126);
}

}  // namespace plugfest::netns
