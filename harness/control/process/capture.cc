#include "harness/control/process/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "harness/wire/fields.h"
#include "harness/wire/protocol.h"

namespace plugfest::control {

namespace {

constexpr std::size_t kLogLines = 4096;
constexpr std::uint32_t kMaxRecord = 64 * 1024;

// The result of variables_read().
std::mutex variables_mutex;
std::set<std::string>& variables() {
  static auto& names = *new std::set<std::string>;
  return names;
}

// Appends available data, at most `kMaxAtOnce` bytes, so that a plugin that never stops to write keeps neither the
// lock nor the memory. False at the end of the pipe.
bool read_available(int fd, std::string& into) {
  constexpr std::size_t kMaxAtOnce = 1 << 20;  // the capacity of a pipe at most
  char bytes[16 * 1024];
  for (const std::size_t end = into.size() + kMaxAtOnce; into.size() < end;) {
    const ssize_t size = read(fd, bytes, sizeof bytes);
    if (size > 0)
      into.append(bytes, static_cast<std::size_t>(size));
    else if (size == 0)
      return false;
    else if (errno != EINTR)
      return errno == EAGAIN || errno == EWOULDBLOCK;
  }
  return true;
}

}  // namespace

Capture::Capture(Descriptor output, Descriptor log, std::size_t limit_bytes)
    : output_pipe_(std::move(output)), log_pipe_(std::move(log)), limit_(limit_bytes) {
  for (const int fd : {output_fd(), log_fd()}) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

Capture::~Capture() { drain_locked(); }

std::string Capture::output() {
  const std::lock_guard lock(mutex_);
  drain_locked();
  if (left_out_ == 0) return output_;
  return fmt::format("… {} earlier bytes are left out …\n{}", left_out_, output_);
}

std::vector<LogLine> Capture::log() {
  const std::lock_guard lock(mutex_);
  drain_locked();
  return {log_.begin(), log_.end()};
}

std::size_t Capture::log_left_out() {
  const std::lock_guard lock(mutex_);
  return log_left_out_;
}

void Capture::clear() {
  const std::lock_guard lock(mutex_);
  drain_locked();
  output_.clear();
  left_out_ = 0;
  log_.clear();
  log_left_out_ = 0;
}

void Capture::drain() {
  const std::lock_guard lock(mutex_);
  drain_locked();
}

void Capture::drain_locked() {
  if (!output_ended_) output_ended_ = !read_available(output_fd(), output_);
  if (output_.size() > limit_) {
    left_out_ += output_.size() - limit_;
    output_.erase(0, output_.size() - limit_);
  }
  if (!log_ended_) log_ended_ = !read_available(log_fd(), log_bytes_);
  take_records();
}

void Capture::take_records() {
  std::size_t at = 0;
  while (!log_is_invalid_) {
    std::uint32_t size = 0;
    if (log_bytes_.size() - at < sizeof size) break;
    std::memcpy(&size, log_bytes_.data() + at, sizeof size);
    const bool is_variable = (size & wire::kVariableRecord) != 0;
    size &= ~wire::kVariableRecord;
    log_is_invalid_ = size > kMaxRecord;
    if (log_is_invalid_ || log_bytes_.size() - at < sizeof size + size) break;
    const auto body = std::span(log_bytes_).subspan(at + sizeof size, size);
    at += sizeof size + size;
    if (is_variable) {
      const std::lock_guard lock(variables_mutex);
      variables().emplace(body.begin(), body.end());
      continue;
    }
    try {
      const auto record = wire::decode<wire::LogRecord>(std::as_bytes(body));
      add({record.level, record.subsystems, record.file, record.line, record.text});
    } catch (const wire::WireError&) {
      add({0, 0, "", 0, "(an invalid log record)"});
    }
  }
  log_bytes_.erase(0, log_is_invalid_ ? log_bytes_.size() : at);
}

void Capture::add(LogLine line) {
  if (!log_.empty()) {
    LogLine& last = log_.back();
    if (std::tie(last.level, last.file, last.line, last.text) ==
        std::tie(line.level, line.file, line.line, line.text)) {
      ++last.count;
      return;
    }
  }
  log_.push_back(std::move(line));
  if (log_.size() <= kLogLines) return;
  log_left_out_ += log_.front().count;
  log_.pop_front();
}

Collector::Collector() : epoll_(epoll_create1(EPOLL_CLOEXEC)), stop_(eventfd(0, EFD_CLOEXEC)) {
  if (!epoll_ || !stop_) throw_errno("create descriptors for the output of ranks");
  watch(stop_.get(), kStop);
  thread_ = std::thread([this] { run(); });
}

Collector::~Collector() {
  const std::uint64_t increment = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &increment, sizeof increment);
  thread_.join();
}

void Collector::watch(int fd, std::uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("wait for the output of a rank");
}

void Collector::add(const std::shared_ptr<Capture>& capture) {
  const std::lock_guard lock(mutex_);
  std::erase_if(captures_, [](const auto& entry) { return entry.second.expired(); });
  captures_.emplace(next_key_, capture);
  watch(capture->output_fd(), next_key_++);
  captures_.emplace(next_key_, capture);
  watch(capture->log_fd(), next_key_++);
}

std::shared_ptr<Capture> Collector::find(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(key);
  return found == captures_.end() ? nullptr : found->second.lock();
}

void Collector::run() {
  epoll_event events[16];
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events, 16, -1);
    if (count < 0 && errno != EINTR) return;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t key = events[i].data.u64;
      if (key == kStop) return;
      // Without its capture a pipe is closed, and another pipe may have got its descriptor.
      const std::shared_ptr<Capture> capture = find(key);
      if (!capture) continue;
      capture->drain();
      // A closed pipe stays readable.
      if ((events[i].events & (EPOLLHUP | EPOLLERR)) != 0)
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, is_log(key) ? capture->log_fd() : capture->output_fd(), nullptr);
    }
  }
}

std::set<std::string> variables_read() {
  const std::lock_guard lock(variables_mutex);
  return variables();
}

std::string to_text(const LogLine& line) {
  static constexpr const char* kLevels[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
  const std::string level =
      line.level >= 0 && line.level <= 5 ? kLevels[line.level] : fmt::format("level {}", line.level);
  const std::string place = line.file.empty() ? "" : fmt::format(" {}:{}", line.file, line.line);
  const std::string repeated = line.count == 1 ? "" : fmt::format(" (repeated {} times)", line.count);
  return fmt::format("{}{} {}{}", level, place, line.text, repeated);
}

}  // namespace plugfest::control
