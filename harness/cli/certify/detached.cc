#include "harness/cli/certify/detached.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest::cli {
namespace {

constexpr int kPollMs = 50;

/// Copies what has been added to the file. False if nobody reads standard output any more.
bool copy_new(const Descriptor& file, off_t& copied) {
  char bytes[4096];
  for (ssize_t size; (size = pread(file.get(), bytes, sizeof bytes, copied)) > 0; copied += size) {
    for (ssize_t done = 0; done < size;) {
      const ssize_t part = write(STDOUT_FILENO, bytes + done, static_cast<std::size_t>(size - done));
      if (part <= 0) return false;
      done += part;
    }
  }
  return true;
}

int wait_and_copy(pid_t child, const Descriptor& file) {
  off_t copied = 0;
  int status = 0;
  bool has_reader = static_cast<bool>(file);
  for (bool ended = false; !ended;) {
    ended = waitpid(child, &status, has_reader ? WNOHANG : 0) == child;
    if (has_reader) has_reader = copy_new(file, copied);
    if (!ended && has_reader) poll(nullptr, 0, kPollMs);
  }
  return exit_code_of(status);
}

}  // namespace

std::optional<int> Detached::start(const std::string& log) {
  Descriptor output;
  if (!log.empty()) {
    output = Descriptor(open(log.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    if (!output) throw std::runtime_error(fmt::format("{}: cannot write: {}", log, std::strerror(errno)));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("a pipe");
  Descriptor job(ends[0]), waiting(ends[1]);
  std::fflush(nullptr);  // otherwise both processes would write what is buffered
  const pid_t child = fork();
  if (child < 0) throw_errno("fork");
  if (child > 0) {
    job.close();
    return wait_and_copy(child, output);
  }
  setsid();
  if (output) {
    dup2(output.get(), STDOUT_FILENO);
    dup2(output.get(), STDERR_FILENO);
  }
  job_ = std::move(job);
  return std::nullopt;
}

bool Detached::job_has_ended() const {
  pollfd end{job_.get(), POLLIN, 0};
  return job_ && poll(&end, 1, 0) > 0;
}

void JobWatch::run(const Detached& task, const cluster::Hub& hub, double host_seconds) {
  static constexpr std::chrono::milliseconds kPoll(100);
  const auto is_done = [done = done_.get_future()] { return done.wait_for(kPoll) == std::future_status::ready; };
  while (!task.job_has_ended()) {
    if (is_done()) return;
  }
  // It takes the hub some time to notice that a host is lost.
  const Nanoseconds deadline = now_ns() + static_cast<Nanoseconds>((host_seconds + 1) * 1e9);
  while (now_ns() < deadline) {
    for (const auto& [name, host] : hub.hosts()) {
      if (host.lost.empty()) continue;
      fmt::print("the job has ended because host {} is lost; the certification goes on\n", name);
      std::fflush(stdout);
      return;
    }
    if (is_done()) return;
  }
  kill(getpid(), SIGTERM);
}

}  // namespace plugfest::cli
