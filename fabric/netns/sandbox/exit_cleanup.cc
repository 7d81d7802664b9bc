#include "fabric/netns/sandbox/exit_cleanup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/netns/sandbox/supervision.h"
#include "fabric/system/throw_errno.h"

namespace plugfest::netns {
namespace {

// Standard output may be a pipe whose reader waits for end of file.
void detach_standard_streams() {
  const int null_device = open("/dev/null", O_RDWR);
  for (const int stream : {0, 1, 2}) dup2(null_device, stream);
}

}  // namespace

ExitCleanup::ExitCleanup(std::function<void()> function) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe");
  process_ = fork();
  if (process_ < 0) throw_errno("fork");
  if (process_ == 0) {
    let_finish(getpid());
    setsid();  // no signals from the terminal
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    detach_standard_streams();
    close(ends[1]);
    char byte;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) continue;
    function();
    _exit(0);
  }
  close(ends[0]);
  pipe_ = ends[1];
}

ExitCleanup::~ExitCleanup() {
  close(pipe_);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace plugfest::netns
