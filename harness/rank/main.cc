// plugfest-rank: the process that holds one copy of the plugin under test and does what the controller says.
//
// Started by harness/control with kControlFd, kMainFd and kLogFd open; of no use by hand. With --witness PLUGIN it asks
// NCCL about the plugin instead, and writes the answer to kControlFd.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>

#include "harness/rank/crash.h"
#include "harness/rank/nccl_load.h"
#include "harness/rank/protocol/protocol.h"
#include "harness/rank/server.h"

int main(int argc, char** argv) {
  using namespace plugfest::rank;
  if (argc == 3 && std::string_view(argv[1]) == kWitnessOption) return be_witness(argv[2]);
  for (const int fd : {kControlFd, kMainFd, kLogFd}) {
    // Programs that the plugin starts must not hold the controller's descriptors.
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
      std::fputs("plugfest-rank: this program is started by plugfest; run plugfest --help\n", stderr);
      return 2;
    }
  }
  // The end of the control channel is noticed only by a process that runs: this one may be stopped.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  report_crashes(kControlFd);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::thread(serve_control, Channel(plugfest::Descriptor(kControlFd))).detach();
  serve_thread(Channel(plugfest::Descriptor(kMainFd)), kMainThread);
  // The main channel ends with the control channel, whose thread ends the process.
  for (;;) pause();
}
