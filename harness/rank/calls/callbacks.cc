#include "harness/rank/calls/callbacks.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "harness/wire/fields.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

namespace {

// Writes of at most PIPE_BUF bytes to a pipe are atomic.
constexpr std::size_t kTextRoom = PIPE_BUF - 512;
constexpr std::size_t kFileRoom = 256;

__attribute__((format(printf, 5, 6))) void log(int level, unsigned long subsystems, const char* file, int line,
                                               const char* format, ...) {
  const int saved_errno = errno;
  char text[kTextRoom];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);

  LogRecord record;
  record.level = level;
  record.subsystems = subsystems;
  // Keeps the end of a long path.
  const std::size_t file_length = file == nullptr ? 0 : strlen(file);
  if (file_length > 0) record.file.assign(file + file_length - std::min(file_length, kFileRoom));
  record.line = line;
  record.text.assign(text, std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof text - 1));

  std::vector<std::byte> bytes(sizeof(std::uint32_t));
  Writer{bytes}(record);
  const auto size = static_cast<std::uint32_t>(bytes.size() - sizeof(std::uint32_t));
  std::memcpy(bytes.data(), &size, sizeof size);
  while (write(kLogFd, bytes.data(), bytes.size()) < 0 && errno == EINTR) {
  }
  errno = saved_errno;
}

abi::Result profile(void** event_handle, int, void*, std::int64_t, void*) {
  static std::atomic<std::uintptr_t> next{0x1000};
  if (event_handle != nullptr) *event_handle = reinterpret_cast<void*>(next.fetch_add(16, std::memory_order_relaxed));
  return abi::Result::kSuccess;
}

}  // namespace

abi::Logger logger() { return log; }
abi::ProfilerCallback profiler_callback() { return profile; }

}  // namespace plugfest::rank
