// The two system calls that every packet takes.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// Through libc's functions sanitizers see what the kernel reads and writes, and that what follows the arrival of a
// packet comes after its departure.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLUGFEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLUGFEST_SANITIZED 1
#endif
#endif

namespace plugfest::roce {

/// As sendmsg(2) and recvmsg(2), but no cancellation points: a thread that is cancelled ends in the program's code, not
/// in the middle of the NIC's work.
inline ssize_t send_message(int descriptor, const msghdr& message, int flags) {
#ifdef PLUGFEST_SANITIZED
  return sendmsg(descriptor, &message, flags);
#else
  return syscall(SYS_sendmsg, descriptor, &message, flags);
#endif
}
inline ssize_t receive_message(int descriptor, msghdr& message, int flags) {
#ifdef PLUGFEST_SANITIZED
  return recvmsg(descriptor, &message, flags);
#else
  return syscall(SYS_recvmsg, descriptor, &message, flags);
#endif
}

}  // namespace plugfest::roce
