// Mutants of the TS, FL, CL, ER and TH rules.
#include <dirent.h>
#include <sched.h>
#include <time.h>

#include <atomic>

#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "conformance/mutants/in_flight.h"
#include "conformance/mutants/ledger.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

/// Whether any rank stands still: the peer among them.
bool a_peer_is_stopped() {
  DIR* const processes = opendir("/proc");
  if (processes == nullptr) return false;
  bool stopped = false;
  while (const dirent* const entry = readdir(processes)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    const std::string folder = std::string("/proc/") + entry->d_name;
    std::string command, state;
    std::getline(std::ifstream(folder + "/cmdline"), command, '\0');
    std::getline(std::ifstream(folder + "/stat"), state);
    const std::size_t name_end = state.rfind(") ");
    if (command.ends_with("plugfest-rank") && name_end != std::string::npos && state[name_end + 2] == 'T')
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

// Waits in test until the operation is done.
MUTANT(test_waits, breaks("TS-02")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    Result result = Result::kSuccess;
    do {
      result = good.test(request, done, sizes);
    } while (result == Result::kSuccess && *done == 0);
    return result;
  };
}

// Has one request for all receives of a comm, and tests the oldest for whoever asks.
MUTANT(one_request_for_all_receives, breaks("TS-05")) {
  struct Queues {
    std::mutex mutex;
    std::map<void*, std::deque<void*>> requests;  // of each comm, which is the request that its callers get
  };
  auto queues = std::make_shared<Queues>();
  net.irecv = [&good, queues](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                              void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result != Result::kSuccess || *request == nullptr) return result;
    const std::lock_guard lock(queues->mutex);
    queues->requests[comm].push_back(*request);
    *request = comm;
    return result;
  };
  net.test = [&good, queues](void* request, int* done, int* sizes) {
    void* oldest = request;
    {
      const std::lock_guard lock(queues->mutex);
      auto queue = queues->requests.find(request);
      if (queue != queues->requests.end() && !queue->second.empty()) oldest = queue->second.front();
    }
    const Result result = good.test(oldest, done, sizes);
    if (oldest != request && result == Result::kSuccess && *done == 1) {
      const std::lock_guard lock(queues->mutex);
      queues->requests[request].pop_front();
    }
    return result;
  };
}

// Forgets receives of one comm when another was tested for long.
MUTANT(completions_of_others_lost, breaks("TS-07")) {
  struct Patience {
    std::mutex mutex;
    std::map<void*, void*> comms;  // of each receive that is out
    std::map<void*, int> others;   // tests of other comms since this comm was tested
  };
  auto patience = std::make_shared<Patience>();
  net.irecv = [&good, patience](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result != Result::kSuccess || *request == nullptr) return result;
    const std::lock_guard lock(patience->mutex);
    patience->comms[*request] = comm;
    patience->others.emplace(comm, 0);
    return result;
  };
  net.test = [&good, patience](void* request, int* done, int* sizes) {
    {
      const std::lock_guard lock(patience->mutex);
      auto tested = patience->comms.find(request);
      if (tested != patience->comms.end()) {
        for (auto& [comm, count] : patience->others) count += comm != tested->second ? 1 : 0;
        int& missed = patience->others[tested->second];
        if (missed > 5) {
          missed = 1000;  // for good
          *done = 0;
          return Result::kSuccess;
        }
        missed = 0;
      }
    }
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 1) {
      const std::lock_guard lock(patience->mutex);
      patience->comms.erase(request);
    }
    return result;
  };
}

// Takes irecvConsumed for receives that are out only.
MUTANT(consumed_wants_a_live_request, breaks("FL-07")) {
  auto live = std::make_shared<Ledger<int>>();
  net.irecv = [&good, live](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                            void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) live->put(*request, n);
    return result;
  };
  net.test = [&good, live](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 1) live->erase(request);
    return result;
  };
  net.irecv_consumed = [&good, live](void* comm, int n, void* request) {
    if (live->find(request).value_or(-1) != n) return Result::kInternalError;
    return good.irecv_consumed(comm, n, request);
  };
}

// Gives up the process when a comm is closed with receives out.
MUTANT(close_wants_a_quiet_comm, breaks("CL-03", "MR-11")) {
  auto in_flight = InFlight::watch(net, good);
  net.close_recv = [&good, in_flight](void* comm) {
    if (in_flight->receives(comm) > 0) std::abort();
    return good.close_recv(comm);
  };
}

// Ends every comm of the process with the first that is closed.
MUTANT(close_ends_all_comms, breaks("CL-06")) {
  struct Open {
    std::mutex mutex;
    std::set<void*> open;
    std::set<void*> dead;
  };
  auto comms = std::make_shared<Open>();
  net.connect = [&good, comms](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    const std::lock_guard lock(comms->mutex);
    if (result == Result::kSuccess && *comm != nullptr) {
      comms->open.insert(*comm);
      comms->dead.erase(*comm);
    }
    return result;
  };
  net.close_send = [&good, comms](void* comm) {
    {
      const std::lock_guard lock(comms->mutex);
      comms->open.erase(comm);
      comms->dead.merge(comms->open);
      comms->open.clear();
    }
    return good.close_send(comm);
  };
  net.isend = [&good, comms](void* comm, auto... arguments) {
    {
      const std::lock_guard lock(comms->mutex);
      if (comms->dead.count(comm) != 0) return Result::kRemoteError;
    }
    return good.isend(comm, arguments...);
  };
}

// Never says that an operation failed.
MUTANT(failures_kept_secret, breaks("TS-09", "ER-04")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (good.isend(comm, data, size, tag, mhandle, request) != Result::kSuccess) *request = nullptr;
    return Result::kSuccess;
  };
  net.test = [&good](void* request, int* done, int* sizes) {
    if (good.test(request, done, sizes) != Result::kSuccess) *done = 0;
    return Result::kSuccess;
  };
}

// Says "in progress" where it should name an error.
MUTANT(errors_called_progress, breaks("ER-01")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    return result == Result::kSuccess ? result : Result::kInProgress;
  };
}

// Leaves the process when the peer has gone.
MUTANT(exits_on_errors, breaks("ER-03", "TS-09")) {
  net.isend = [&good](auto... arguments) {
    const Result result = good.isend(arguments...);
    if (result != Result::kSuccess) std::_Exit(1);
    return result;
  };
  net.test = [&good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess) std::_Exit(1);
    return result;
  };
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    if (result != Result::kSuccess) std::_Exit(1);
    return result;
  };
}

// Has one set of variables for all threads, and fails the one who comes second.
MUTANT(one_thread_at_a_time, breaks("TH-02")) {
  auto busy = std::make_shared<std::atomic<bool>>(false);
  net.test = [&good, busy](void* request, int* done, int* sizes) {
    if (busy->exchange(true)) return Result::kInternalError;
    sched_yield();
    const Result result = good.test(request, done, sizes);
    busy->store(false);
    return result;
  };
}

// Sets up no connection while another thread transfers.
MUTANT(connecting_wants_silence, breaks("TH-03")) {
  auto in_flight = InFlight::watch(net, good);
  net.listen = [&good, in_flight](void* context, int device, void* handle, void** comm) {
    if (in_flight->used_by_another_thread(nullptr)) return Result::kInternalError;
    return good.listen(context, device, handle, comm);
  };
}

}  // namespace plugfest::mutants
