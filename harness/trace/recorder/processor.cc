#include "harness/trace/recorder/processor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <optional>

#include "harness/trace/recorder/records.h"
#include "harness/trace/recorder/writer.h"

namespace plugfest::trace {
namespace {

constexpr std::int64_t kIntervalNs = 1'000'000;
constexpr std::uint64_t kMuchNs = 100'000;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// The kernel's account of a thread.
class Account {
 public:
  ~Account() {
    if (fd_ >= 0) ::close(fd_);
  }

  void sample(std::int64_t now_ns) noexcept {
    if (now_ns < next_ns_) return;
    const std::optional<std::uint64_t> waited = Writer::get().works() ? waited_ns() : std::nullopt;
    if (!waited) {
      next_ns_ = kNever;
      return;
    }
    if (next_ns_ != 0 && *waited - last_waited_ns_ >= kMuchNs) {
      const auto thread = static_cast<std::uint32_t>(Writer::get().thread());
      // The thread may have waited just before or just after the kernel's account was read.
      Records({monotonic_ns(), static_cast<std::uint64_t>(last_ns_), *waited - last_waited_ns_,
               RecordKind::kProcessorWait, 0, 0, thread})
          .write();
    }
    last_waited_ns_ = *waited;
    last_ns_ = now_ns;
    next_ns_ = now_ns + kIntervalNs;
  }

 private:
  std::optional<std::uint64_t> waited_ns() noexcept {
    if (fd_ < 0) fd_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    char text[64];
    const ssize_t got = fd_ < 0 ? -1 : ::pread(fd_, text, sizeof text - 1, 0);
    if (got <= 0) return std::nullopt;
    text[got] = 0;
    unsigned long long ran = 0, waited = 0;
    if (std::sscanf(text, "%llu %llu", &ran, &waited) != 2) return std::nullopt;
    return waited;
  }

  int fd_ = -1;
  std::int64_t next_ns_ = 0, last_ns_ = 0;
  std::uint64_t last_waited_ns_ = 0;
};

}  // namespace

void sample_processor(std::int64_t now_ns) noexcept {
  thread_local Account account;
  account.sample(now_ns);
}

}  // namespace plugfest::trace
