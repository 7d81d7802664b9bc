// System calls and verbs calls of the plugin that fail on request (ER-12, GI-33).
//
// This program defines functions with the names of libc's. The loader finds them first, so the plugin and the libraries
// that it uses call them. They call libc's functions, except for the one call that is to fail. The functions of
// plugfest's libibverbs ask plugfest_verbs_call_fails().
// Not seen: calls within libc, calls without libc, and reads that _FORTIFY_SOURCE redirects to other functions.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "harness/rank/server.h"
#include "harness/rank/thread.h"
#include "harness/wire/process.h"

namespace plugfest::rank {

namespace {

// Whether the calls of the plugin are counted. False outside these rules, where a stand-in does nothing else.
std::atomic<bool> counting{false};
// The library that calls plugfest_verbs_call_fails(): its own system calls stand for a NIC's and do not fail.
std::atomic<const void*> nic{nullptr};

std::mutex mutex;
auto& wanted = *new FailCall;
auto& seen = *new FailCallAnswer;

const void* library_of(const void* code) {
  Dl_info library{};
  return dladdr(code, &library) != 0 ? library.dli_fbase : nullptr;
}

bool belongs_to_plugin(const void* code) {
  static const void* const program = library_of(&counting);
  const void* const library = library_of(code);
  return library != program && library != nic;
}

// "libnccl-net-foo.so+0x1234".
std::string place(const void* code) {
  Dl_info library{};
  if (dladdr(code, &library) == 0) return "";
  const auto offset = static_cast<const char*>(code) - static_cast<const char*>(library.dli_fbase);
  return fmt::format("{}+{:#x}", std::filesystem::path(library.dli_fname).filename().string(), offset);
}

// Counts a call of the plugin. Returns whether it is to fail. `caller`: the return address.
bool fails(const char* call, const void* caller) {
  constexpr std::array<std::string_view, 5> kFunctions = {"init", "devices", "listen", "connect", "accept"};
  const ThreadState* const thread = this_thread_or_null();
  const char* const name = thread == nullptr ? nullptr : thread->call.load(std::memory_order_relaxed);
  if (name == nullptr || std::find(kFunctions.begin(), kFunctions.end(), name) == kFunctions.end()) return false;
  const std::lock_guard lock(mutex);
  auto made = std::find_if(seen.made.begin(), seen.made.end(),
                           [&](const CallsMade& one) { return one.function == name && one.call == call; });
  if (made == seen.made.end()) made = seen.made.insert(made, {name, call, 0});
  ++made->count;
  if (wanted.function != name || wanted.call != call) return false;
  if (wanted.number != 0 && made->count != wanted.number) return false;
  seen.failed = true;
  seen.failed_at = place(caller);
  return true;
}

void note_close(const void* caller) {
  if (!belongs_to_plugin(caller)) return;
  const std::lock_guard lock(mutex);
  seen.invalid_close = place(caller);
}

// The peer closes the connection, as far as both sides can see.
void reset(int fd) {
  shutdown(fd, SHUT_RDWR);
  errno = ECONNRESET;
}

}  // namespace

FailCallAnswer execute(const FailCall& request) {
  const std::lock_guard lock(mutex);
  wanted = request;
  counting = request.counts;
  return std::exchange(seen, {});
}

}  // namespace plugfest::rank

// Called by plugfest's libibverbs for each call of a program that is not on its data path.
extern "C" __attribute__((visibility("default"))) bool plugfest_verbs_call_fails(const char* call) {
  using namespace plugfest::rank;
  if (!counting.load(std::memory_order_relaxed)) return false;
  nic = library_of(__builtin_return_address(0));
  for (const char* release : {"_close", "_dealloc", "_dereg", "_destroy", "_free"})
    if (std::strstr(call, release) != nullptr) return false;
  return fails(call, nullptr);
}

// The prototypes in libc's headers differ in details, so the functions have other names in C++.
#define STAND_IN(result, name, failure, parameters, arguments)                                           \
  extern "C" __attribute__((visibility("default"))) result plugfest_##name parameters __asm__(#name);    \
  extern "C" result plugfest_##name parameters {                                                         \
    using namespace plugfest::rank;                                                                      \
    static std::atomic<result(*) parameters> known{nullptr};                                             \
    const void* const caller = __builtin_return_address(0);                                              \
    if (counting.load(std::memory_order_relaxed) && belongs_to_plugin(caller) && fails(#name, caller)) { \
      failure;                                                                                           \
      return -1;                                                                                         \
    }                                                                                                    \
    return replaced_function(known, #name) arguments;                                                    \
  }

// A third argument stands for the optional one of fcntl, ioctl and open.
STAND_IN(int, socket, errno = EMFILE, (int domain, int type, int protocol), (domain, type, protocol))
STAND_IN(int, socketpair, errno = EMFILE, (int domain, int type, int protocol, int* pair),
         (domain, type, protocol, pair))
STAND_IN(int, bind, errno = EADDRINUSE, (int fd, const void* address, socklen_t size), (fd, address, size))
STAND_IN(int, listen, errno = EADDRINUSE, (int fd, int backlog), (fd, backlog))
STAND_IN(int, accept, errno = EMFILE, (int fd, void* address, socklen_t* size), (fd, address, size))
STAND_IN(int, accept4, errno = EMFILE, (int fd, void* address, socklen_t* size, int flags), (fd, address, size, flags))
STAND_IN(int, connect, errno = ENETUNREACH, (int fd, const void* address, socklen_t size), (fd, address, size))
STAND_IN(int, getsockname, errno = ENOBUFS, (int fd, void* address, socklen_t* size), (fd, address, size))
STAND_IN(int, getpeername, errno = ENOTCONN, (int fd, void* address, socklen_t* size), (fd, address, size))
STAND_IN(int, setsockopt, errno = ENOBUFS, (int fd, int level, int name, const void* value, socklen_t size),
         (fd, level, name, value, size))
STAND_IN(int, getsockopt, errno = ENOBUFS, (int fd, int level, int name, void* value, socklen_t* size),
         (fd, level, name, value, size))
STAND_IN(ssize_t, send, reset(fd), (int fd, const void* data, size_t size, int flags), (fd, data, size, flags))
STAND_IN(ssize_t, recv, reset(fd), (int fd, void* data, size_t size, int flags), (fd, data, size, flags))
STAND_IN(ssize_t, sendto, reset(fd),
         (int fd, const void* data, size_t size, int flags, const void* address, socklen_t length),
         (fd, data, size, flags, address, length))
STAND_IN(ssize_t, recvfrom, reset(fd), (int fd, void* data, size_t size, int flags, void* address, socklen_t* length),
         (fd, data, size, flags, address, length))
STAND_IN(ssize_t, sendmsg, reset(fd), (int fd, const void* message, int flags), (fd, message, flags))
STAND_IN(ssize_t, recvmsg, reset(fd), (int fd, void* message, int flags), (fd, message, flags))
STAND_IN(ssize_t, read, errno = EIO, (int fd, void* data, size_t size), (fd, data, size))
STAND_IN(ssize_t, write, errno = EIO, (int fd, const void* data, size_t size), (fd, data, size))
STAND_IN(int, epoll_create, errno = EMFILE, (int size), (size))
STAND_IN(int, epoll_create1, errno = EMFILE, (int flags), (flags))
STAND_IN(int, epoll_ctl, errno = ENOSPC, (int fd, int operation, int other, void* event), (fd, operation, other, event))
STAND_IN(int, eventfd, errno = EMFILE, (unsigned value, int flags), (value, flags))
STAND_IN(int, timerfd_create, errno = EMFILE, (int clock, int flags), (clock, flags))
STAND_IN(int, pipe2, errno = EMFILE, (int* pair, int flags), (pair, flags))
STAND_IN(int, fcntl, errno = EINVAL, (int fd, int command, void* argument), (fd, command, argument))
STAND_IN(int, fcntl64, errno = EINVAL, (int fd, int command, void* argument), (fd, command, argument))
STAND_IN(int, ioctl, errno = EIO, (int fd, unsigned long request, void* argument), (fd, request, argument))
STAND_IN(int, open, errno = EMFILE, (const char* path, int flags, unsigned mode), (path, flags, mode))
STAND_IN(int, open64, errno = EMFILE, (const char* path, int flags, unsigned mode), (path, flags, mode))

extern "C" __attribute__((visibility("default"))) int plugfest_close(int fd) __asm__("close");
extern "C" int plugfest_close(int fd) {
  using namespace plugfest::rank;
  static std::atomic<int (*)(int)> known{nullptr};
  const int result = replaced_function(known, "close")(fd);
  if (result != 0 && fd >= 0 && errno == EBADF && counting.load(std::memory_order_relaxed)) {
    note_close(__builtin_return_address(0));
    errno = EBADF;
  }
  return result;
}
