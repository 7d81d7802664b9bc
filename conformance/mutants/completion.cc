// Mutants of the TS and CL rules.
#include <dirent.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "conformance/mutants/ledger.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

/// Whether any process of this machine that has a mutant loaded stands still.
bool a_peer_is_stopped() {
  DIR* const processes = opendir("/proc");
  if (processes == nullptr) return false;
  bool stopped = false;
  while (const dirent* const entry = readdir(processes)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    const std::string folder = std::string("/proc/") + entry->d_name;
    std::string command, state;
    std::getline(std::ifstream(folder + "/comm"), command);
    std::getline(std::ifstream(folder + "/stat"), state);
    const std::size_t name_end = state.rfind(") ");
    if (command.starts_with("plugfest-rank") && name_end != std::string::npos && state[name_end + 2] == 'T')
      stopped = true;
  }
  closedir(processes);
  return stopped;
}

}  // namespace

// Leaves *done alone while there is nothing to say.
MUTANT(done_unwritten, breaks("TS-01")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    const int before = *done;
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 0) *done = before;
    return result;
  };
}

// Writes sizes without a look at the pointer.
MUTANT(sizes_always_written, breaks("TS-03")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 1) {
      volatile int* const first = sizes;
      *first = *first;
    }
    return result;
  };
}

// Never writes sizes.
MUTANT(sizes_never_written, breaks("TS-04", "XF-09")) {
  net.test = [&good](void* request, int* done, int*) { return good.test(request, done, nullptr); };
}

// Completes only the request that was posted last.
MUTANT(newest_request_first, breaks("TS-06")) {
  auto newest = std::make_shared<Ledger<void*>>();
  auto owners = std::make_shared<Ledger<void*>>();
  net.irecv = [&good, newest, owners](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                      void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) {
      newest->put(comm, *request);
      owners->put(*request, comm);
    }
    return result;
  };
  net.test = [&good, newest, owners](void* request, int* done, int* sizes) {
    const auto comm = owners->find(request);
    if (comm && newest->find(*comm).value_or(request) != request) {
      *done = 0;
      return Result::kSuccess;
    }
    const Result result = good.test(request, done, sizes);
    if (comm && result == Result::kSuccess && *done == 1) {
      owners->erase(request);
      newest->erase(*comm);
    }
    return result;
  };
}

// Waits in closeSend for a peer that stands still.
MUTANT(close_waits_for_peer, breaks("CL-01")) {
  net.close_send = [&good](void* comm) {
    while (a_peer_is_stopped()) {
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
    return good.close_send(comm);
  };
}

}  // namespace plugfest::mutants
