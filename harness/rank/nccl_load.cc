#include "harness/rank/nccl_load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "harness/plugin/nccl/nccl_loader.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

int report_nccl_load(const char* plugin) {
  for (const int fd : {kControlFd, kLogFd}) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) continue;
    std::fputs("plugfest-rank: this program is started by plugfest; run plugfest --help\n", stderr);
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string answer;
  try {
    const plugin::NcclLoad seen = plugin::load_with_nccl(plugin, kLogFd);
    answer = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n", seen.nccl, seen.api, seen.name, seen.network,
                         static_cast<int>(seen.init), static_cast<int>(seen.finalize), seen.devices);
  } catch (const std::exception& error) {
    answer = fmt::format("error\n{}\n", error.what());
  }
  // The answer fits into a pipe. _exit runs no destructors of the plugin and of NCCL, which might crash.
  const bool written = ::write(kControlFd, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
  ::_exit(written ? 0 : 1);
}

}  // namespace plugfest::rank
