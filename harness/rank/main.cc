// plugfest-rank: the process that holds one copy of the plugin under test and executes the controller's requests.
//
// harness/control starts it with kControlFd, kMainFd and kLogFd open.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "harness/rank/server.h"
#include "harness/wire/protocol.h"

// libstdc++ is linked statically, and its std::random_device needs this function of glibc 2.36: Ubuntu 22.04 has 2.35.
extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) std::abort();
  return number;
}

namespace {

// Opens as many descriptors as PLUGFEST_RANK_DESCRIPTORS says (SK-04), and raises the limit as NCCL does.
void open_descriptors() {
  const char* const count = std::getenv("PLUGFEST_RANK_DESCRIPTORS");
  if (count == nullptr) return;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  for (int i = std::atoi(count); i > 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0; --i) {
  }
}

// With PLUGFEST_RANK_SIGNALS (XF-36): each thread gets a signal every millisecond, as from a profiler. Its handler does
// nothing, and system calls that it interrupts return EINTR.
void start_signals() {
  if (std::getenv("PLUGFEST_RANK_SIGNALS") == nullptr) return;
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGPROF, &action, nullptr);
  std::thread([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    const pid_t own = gettid();
    for (;;) {
      usleep(1000);
      std::error_code error;
      for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
        const pid_t id = std::atoi(thread.path().filename().c_str());
        if (id != own) tgkill(getpid(), id, SIGPROF);
      }
    }
  }).detach();
}

}  // namespace

int main() {
  using namespace plugfest::rank;
  protect_plugfest();
  for (const int fd : {kControlFd, kMainFd, kLogFd}) {
    // Programs that the plugin starts must not inherit the controller's descriptors.
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
      std::fputs("plugfest-rank: this program is started by plugfest; run plugfest --help\n", stderr);
      return 2;
    }
  }
  // A stopped process does not notice the end of the control channel.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // a debugger that is not an ancestor
  report_crashes(kControlFd);
  prepare_exit();
  report_variables();
  open_descriptors();
  start_signals();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::thread(serve_control, Channel(plugfest::Descriptor(kControlFd))).detach();
  serve_thread(Channel(plugfest::Descriptor(kMainFd)), kMainThread);
  // The controller has closed its channels: the control thread ends the process.
  for (;;) pause();
}
