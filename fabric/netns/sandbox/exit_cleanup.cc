#include "fabric/netns/sandbox/exit_cleanup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace plugfest::netns {
namespace {

// Standard output may be a pipe whose reader waits for its end.
void let_go_of_standard_streams() {
  const int nothing = open("/dev/null", O_RDWR);
  for (const int stream : {0, 1, 2}) dup2(nothing, stream);
}

}  // namespace

ExitCleanup::ExitCleanup(std::function<void()> function) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  process_ = fork();
  if (process_ < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (process_ == 0) {
    setsid();  // away from the terminal's signals
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    let_go_of_standard_streams();
    close(ends[1]);
    char byte;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) continue;
    function();
    _exit(0);
  }
  close(ends[0]);
  lifeline_ = ends[1];
}

ExitCleanup::~ExitCleanup() {
  close(lifeline_);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace plugfest::netns
