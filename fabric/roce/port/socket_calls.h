// The system calls that send and receive packets.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// With a sanitizer the calls go through libc, so that it sees which memory the kernel accesses, and that receiving a
// packet happens after sending it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLUGFEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLUGFEST_SANITIZED 1
#endif
#endif

namespace plugfest::roce {

/// As sendmsg(2) and recvmsg(2), but not cancellation points: a cancelled thread of the program must not end while it
/// holds the NIC's lock.
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
