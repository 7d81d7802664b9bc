#include "harness/trace/recorder/writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <new>
#include <utility>

namespace plugfest::trace {
namespace {

std::int64_t time_of(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

// The name that NCCL knows the host by: emulated hosts share the machine's name.
std::string host_name() {
  if (const char* const id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return id;
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

template <std::size_t N>
void copy(char (&target)[N], const std::string& text) {
  std::memcpy(target, text.data(), std::min(text.size(), N - 1));
}

std::string boot_id() {
  char text[40] = {};
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const ssize_t got = ::read(fd, text, 36);
  ::close(fd);
  return got == 36 ? text : "";
}

// Whether all bytes were written. Otherwise errno is the reason.
bool write_all(int fd, const void* bytes, std::size_t size) noexcept {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

__attribute__((destructor)) void flush_at_exit() { Writer::get().flush(); }

}  // namespace

std::int64_t monotonic_ns() noexcept { return time_of(CLOCK_MONOTONIC); }

Writer& Writer::get() {
  alignas(Writer) static std::byte memory[sizeof(Writer)];
  static Writer* const writer = new (memory) Writer;
  return *writer;
}

constinit thread_local Writer::Buffer* Writer::mine_ = nullptr;

bool Writer::open(const char* folder) noexcept {
  try {
    if (forked_) {
      give_up("this process was forked after NCCL had been initialized");
      return false;
    }
    const std::lock_guard lock(opening_);
    if (works() || gave_up_) return works();
    if (folder == nullptr || *folder == '\0') {
      give_up(std::string(kRecordingFolderVariable) + " is not set: set it to a folder for the files of all ranks");
      return false;
    }
    if (const int error = ::pthread_atfork(nullptr, nullptr, stop_in_child); error != 0) {
      give_up(std::string("pthread_atfork: ") + std::strerror(error));
      return false;
    }
    FileHeader header{};
    std::memcpy(header.magic, kRecordingMagic, sizeof header.magic);
    header.monotonic_ns = time_of(CLOCK_MONOTONIC);
    header.realtime_ns = time_of(CLOCK_REALTIME);
    header.pid = static_cast<std::uint64_t>(::getpid());
    copy(header.boot_id, boot_id());
    std::string host = host_name();
    copy(header.host, host);
    std::replace(host.begin(), host.end(), '/', '_');
    const std::string name = std::string(folder) + '/' + host + '-' + std::to_string(::getpid());
    // Processes of different containers may have the same number.
    int fd = -1;
    for (int number = 1; fd < 0 && (number == 1 || errno == EEXIST); ++number) {
      path_ = name + (number == 1 ? "" : "-" + std::to_string(number)) + kRecordingSuffix;
      fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    }
    if (fd < 0 || !write_all(fd, &header, sizeof header)) {
      give_up(path_ + ": cannot write: " + std::strerror(errno));
      if (fd >= 0) ::close(fd);
      return false;
    }
    fd_ = fd;
    return true;
  } catch (const std::exception& error) {
    give_up(error.what());
    return false;
  }
}

void Writer::give_up(const std::string& reason) noexcept {
  if (gave_up_.exchange(true)) return;
  // The descriptor stays open: another thread may be about to write to it.
  fd_ = -1;
  std::fprintf(stderr, "plugfest recorder: %s; NCCL continues without a recording\n", reason.c_str());
}

void Writer::stop_in_child() noexcept {
  Writer& writer = get();
  writer.forked_ = true;
  if (const int fd = writer.fd_.exchange(-1); fd >= 0) ::close(fd);
}

Writer::Owner::~Owner() {
  Buffer* const given_back = std::exchange(mine_, nullptr);
  if (given_back == nullptr) return;
  Writer::get().flush(*given_back);
  given_back->in_use.store(false, std::memory_order_release);
}

Writer::Buffer* Writer::buffer() noexcept {
  if (mine_ != nullptr) return mine_;
  thread_local Owner owner;
  for (Buffer* one = buffers_.load(std::memory_order_acquire); one != nullptr; one = one->next) {
    bool free = false;
    if (!one->in_use.compare_exchange_strong(free, true)) continue;
    one->thread = ++threads_;
    one->events = 0;
    return mine_ = one;
  }
  auto* const made = new (std::nothrow) Buffer;
  if (made == nullptr) return nullptr;
  made->thread = ++threads_;
  made->next = buffers_.load(std::memory_order_relaxed);
  while (!buffers_.compare_exchange_weak(made->next, made, std::memory_order_release)) {
  }
  return mine_ = made;
}

std::uint64_t Writer::thread() noexcept {
  Buffer* const mine = buffer();
  return mine == nullptr ? 0 : mine->thread;
}

std::uint64_t Writer::next_event() noexcept {
  Buffer* const mine = buffer();
  return mine == nullptr ? 0 : mine->thread << kThreadShift | ++mine->events;
}

bool Writer::changes_state(std::uint64_t event, std::uint8_t state) noexcept {
  Buffer* const mine = buffer();
  if (mine == nullptr) return true;
  Buffer::State& last = mine->states[event % Buffer::kStates];
  if (last.event == event && last.state == state) return false;
  last = {event, state};
  return true;
}

void Writer::append(std::span<const Record> records) noexcept {
  Buffer* const mine = works() ? buffer() : nullptr;
  if (mine == nullptr) return;
  std::uint64_t head = mine->head.load(std::memory_order_relaxed);
  if (head + records.size() - mine->tail.load(std::memory_order_acquire) > Buffer::kRecords) flush(*mine);
  for (const Record& record : records) mine->records[head++ % Buffer::kRecords] = record;
  mine->head.store(head, std::memory_order_release);
}

void Writer::flush(Buffer& buffer) noexcept {
  if (!works()) return;  // In a forked child, a thread that the child lacks may hold the lock.
  const std::lock_guard lock(buffer.flushing);
  const std::uint64_t head = buffer.head.load(std::memory_order_acquire);
  std::uint64_t tail = buffer.tail.load(std::memory_order_relaxed);
  while (tail < head) {
    const std::uint64_t first = tail % Buffer::kRecords;
    const std::uint64_t count = std::min(head - tail, Buffer::kRecords - first);
    write(buffer.records + first, count);
    tail += count;
  }
  buffer.tail.store(tail, std::memory_order_release);
}

// O_APPEND keeps the records of different threads apart.
void Writer::write(const Record* records, std::size_t count) noexcept {
  const int fd = fd_;
  if (fd >= 0 && !write_all(fd, records, count * sizeof(Record))) {
    try {
      give_up(path_ + ": cannot write: " + std::strerror(errno));
    } catch (const std::exception&) {
      gave_up_ = true;
      fd_ = -1;
    }
  }
}

void Writer::flush() noexcept {
  for (Buffer* one = buffers_.load(std::memory_order_acquire); one != nullptr; one = one->next) flush(*one);
}

}  // namespace plugfest::trace
