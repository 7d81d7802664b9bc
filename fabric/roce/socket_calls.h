// The two system calls that every packet takes.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plugfest::roce {

/// As sendmsg(2) and recvmsg(2), but no cancellation points: a thread that is cancelled ends in the program's code, not
/// in the middle of the NIC's work.
inline ssize_t send_message(int descriptor, const msghdr& message, int flags) {
  return syscall(SYS_sendmsg, descriptor, &message, flags);
}
inline ssize_t receive_message(int descriptor, msghdr& message, int flags) {
  return syscall(SYS_recvmsg, descriptor, &message, flags);
}

}  // namespace plugfest::roce
