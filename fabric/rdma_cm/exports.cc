// libplugfest-rdmacm.so, for LD_PRELOAD: the device /dev/infiniband/rdma_cm of this process. The unmodified librdmacm
// opens it, writes commands to it, and waits until it is readable, so this library stands in for the C library's
// open(), fstat(), write() and close() of this file. All other files are passed on. A program must not replace a
// channel by dup2().
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <unordered_map>

#include "fabric/rdma_cm/commands.h"
#include "fabric/rdma_cm/error.h"
#include "fabric/rdma_cm/manager.h"

namespace plugfest::rdma_cm {
namespace {

constexpr const char* kDevice = "/dev/infiniband/rdma_cm";

// Whether each descriptor is a channel, for a fast answer. Pages that no descriptor needs take no memory.
std::array<std::atomic<bool>, 1 << 20> is_channel;

// The channels by their descriptors. A call keeps its channel although another thread closes it, as in the kernel; so
// the lock is never held for long, unlike the manager's.
struct Channels {
  std::mutex lock;
  std::unordered_map<int, std::shared_ptr<Channel>> of_descriptors;
};
Channels* channels = nullptr;  // used until the process ends

// The process that `channels` belongs to. A child after fork() or vfork() has the descriptors, but not the threads.
std::atomic<pid_t> owner;

void start_again_in_child() {
  Manager::start_again_in_child();
  channels = new Channels;
  owner = ::getpid();
}

bool is_channel_number(int descriptor) {
  return descriptor >= 0 && static_cast<std::size_t>(descriptor) < is_channel.size() &&
         is_channel[static_cast<std::size_t>(descriptor)].load(std::memory_order_acquire);
}

// The channel of a descriptor. Null for other files, and for channels of the parent process.
std::shared_ptr<Channel> channel_of(int descriptor) {
  if (!is_channel_number(descriptor) || ::getpid() != owner.load()) return nullptr;
  const std::lock_guard guard(channels->lock);
  const auto found = channels->of_descriptors.find(descriptor);
  return found == channels->of_descriptors.end() ? nullptr : found->second;
}

// The next definition of a function of the C library.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// The number of the kernel's device, which librdmacm compares if the kernel has the module rdma_ucm; otherwise 0.
dev_t device_number() {
  unsigned major = 0, minor = 0;
  std::FILE* const file = std::fopen("/sys/class/misc/rdma_cm/dev", "re");
  if (file == nullptr) return 0;
  const bool found = std::fscanf(file, "%u:%u", &major, &minor) == 2;
  std::fclose(file);
  return found ? makedev(major, minor) : 0;
}

int errno_of_current_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::system_error& error) {
    return error.code().value();
  } catch (const std::exception&) {
    return EIO;
  }
}

int open_device() noexcept {
  try {
    static const int registered = ::pthread_atfork(nullptr, nullptr, start_again_in_child);
    const std::lock_guard guard(Manager::instance().lock());
    if (registered != 0) throw std::bad_alloc();
    if (channels == nullptr) channels = new Channels;
    const auto channel = std::make_shared<Channel>();
    const int descriptor = channel->descriptor();
    if (static_cast<std::size_t>(descriptor) >= is_channel.size()) {
      ::close(descriptor);
      fail(EMFILE);
    }
    {
      const std::lock_guard guard_of_channels(channels->lock);
      channels->of_descriptors[descriptor] = channel;
    }
    is_channel[static_cast<std::size_t>(descriptor)].store(true, std::memory_order_release);
    owner = ::getpid();
    return descriptor;
  } catch (...) {
    errno = errno_of_current_exception();
    return -1;
  }
}

// `channel`: null if the descriptor is one of the parent process.
void close_device(int descriptor, Channel* channel) noexcept {
  if (channel == nullptr) {
    is_channel[static_cast<std::size_t>(descriptor)].store(false, std::memory_order_release);
    return;
  }
  {
    const std::lock_guard guard(channels->lock);
    is_channel[static_cast<std::size_t>(descriptor)].store(false, std::memory_order_release);
    channels->of_descriptors.erase(descriptor);
  }
  const std::lock_guard guard(Manager::instance().lock());
  Manager::instance().close(*channel);
}

// Not noexcept: a thread that waits for an event may be canceled, which unwinds its stack.
ssize_t write_command(Channel& channel, const void* bytes, std::size_t size) {
  try {
    execute(channel, {static_cast<const std::byte*>(bytes), size});
    return static_cast<ssize_t>(size);
  } catch (const std::exception&) {
    errno = errno_of_current_exception();
    return -1;
  }
}

}  // namespace
}  // namespace plugfest::rdma_cm

extern "C" {

#pragma GCC visibility push(default)

int open(const char* path, int flags, ...) {
  using Open = int(const char*, int, ...);
  static Open* const real = plugfest::rdma_cm::next<Open>("open");
  const char* volatile given = path;  // declared as never null, which a program may not know
  if (given != nullptr && std::strcmp(path, plugfest::rdma_cm::kDevice) == 0) return plugfest::rdma_cm::open_device();
  if ((flags & O_CREAT) == 0 && (flags & O_TMPFILE) != O_TMPFILE) return real(path, flags);
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return real(path, flags, mode);
}

int fstat(int descriptor, struct stat* status) noexcept {
  using Fstat = int(int, struct stat*);
  static Fstat* const real = plugfest::rdma_cm::next<Fstat>("fstat");
  const int result = real(descriptor, status);
  if (result != 0 || !plugfest::rdma_cm::is_channel_number(descriptor)) return result;
  status->st_mode = S_IFCHR | 0600;
  status->st_rdev = plugfest::rdma_cm::device_number();
  return 0;
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  using Write = ssize_t(int, const void*, size_t);
  static Write* const real = plugfest::rdma_cm::next<Write>("write");
  if (!plugfest::rdma_cm::is_channel_number(descriptor)) return real(descriptor, bytes, size);
  const auto channel = plugfest::rdma_cm::channel_of(descriptor);
  if (channel != nullptr) return plugfest::rdma_cm::write_command(*channel, bytes, size);
  // EIO: the channel belongs to the parent process. EBADF: another thread has just closed it.
  errno = plugfest::rdma_cm::is_channel_number(descriptor) ? EIO : EBADF;
  return -1;
}

int close(int descriptor) {
  using Close = int(int);
  static Close* const real = plugfest::rdma_cm::next<Close>("close");
  // A child after vfork() shares this memory with its parent.
  if (plugfest::rdma_cm::is_channel_number(descriptor) && ::getpid() == plugfest::rdma_cm::owner.load())
    plugfest::rdma_cm::close_device(descriptor, plugfest::rdma_cm::channel_of(descriptor).get());
  return real(descriptor);
}

// The same functions under the names for large files, which programs and libraries may use instead.
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int fstat64(int descriptor, struct stat64* status) noexcept __attribute__((alias("fstat")));

#pragma GCC visibility pop

}  // extern "C"
