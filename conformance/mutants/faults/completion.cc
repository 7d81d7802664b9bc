// Mutants of the TS, FL, CL, ER and TH rules.
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/stopped_peer.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

/// Tests of receives on one thread.
struct ReceiveTests {
  std::map<void*, void*> comms;  // by outstanding receive
  std::map<void*, int> others;   // by comm with receives outstanding: tests of other comms since its last test
  std::set<void*> lost;          // receives
};
thread_local ReceiveTests tests;

}  // namespace

// test does not write *done while the operation is not done.
MUTANT(done_unwritten, breaks("TS-01").also("PR-*")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    const int before = *done;
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 0) *done = before;
    return result;
  };
}

// test accesses sizes without a NULL check.
MUTANT(null_sizes_dereferenced, breaks("TS-03")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 1) {
      volatile int* const first = sizes;
      *first = *first;
    }
    return result;
  };
}

// test never writes sizes.
MUTANT(sizes_never_written, breaks("TS-04", "XF-09", "XF-26", "XF-41")) {
  net.test = [&good](void* request, int* done, int*) { return good.test(request, done, nullptr); };
}

// Of the receives of more than 64 KiB, test completes only the one that was posted last.
MUTANT(only_newest_request_completes, breaks("TS-06").also("ER-09", "ER-10", "MR-*", "PR-*", "XF-*")) {
  auto newest = std::make_shared<PointerMap<void*>>();
  auto owners = std::make_shared<PointerMap<void*>>();
  net.irecv = [&good, newest, owners](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                      void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr && sizes[0] > 65536) {
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

// closeSend waits while any rank is stopped.
MUTANT(close_waits_for_peer, breaks("CL-01").also("CL-09", "CL-12")) {
  net.close_send = [&good](void* comm) {
    while (a_peer_is_stopped()) {
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
    return good.close_send(comm);
  };
}

// test of a send of more than 16 MiB waits until it is done.
MUTANT(test_waits, breaks("TS-02")) {
  auto large = std::make_shared<PointerMap<bool>>();
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request != nullptr && size > 16 << 20) large->put(*request, true);
    return result;
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    Result result = good.test(request, done, sizes);
    if (!large->find(request)) return result;
    while (result == Result::kSuccess && *done == 0) result = good.test(request, done, sizes);
    large->erase(request);
    return result;
  };
}

// test of a send of more than 16 MiB that has begun waits until it is done.
MUTANT(test_waits_in_mid_message, breaks("TS-02")) {
  auto tests = std::make_shared<PointerMap<int>>();
  auto large = [tests](Result result, std::size_t size, void** request) {
    if (result == Result::kSuccess && *request != nullptr && size > 16 << 20) tests->put(*request, 0);
    return result;
  };
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return large(good.isend(comm, data, size, tag, mhandle, request), size, request);
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    Result result = good.test(request, done, sizes);
    if (!tests->find(request)) return result;
    const bool begun = tests->change(request, [](int& count) { return ++count; }) > 1;
    while (begun && result == Result::kSuccess && *done == 0) result = good.test(request, done, sizes);
    if (result != Result::kSuccess || *done == 1) tests->erase(request);
    return result;
  };
}

namespace {

/// irecv returns the same request for all receives of a comm; test tests the oldest of them.
void use_one_request(Net& net, const Net& good) {
  struct Queues {
    std::mutex mutex;
    std::map<void*, std::deque<void*>> requests;  // by comm, oldest first
  };
  auto queues = std::make_shared<Queues>();
  net.irecv = [&good, queues](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                              void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result != Result::kSuccess || *request == nullptr) return result;
    const std::lock_guard lock(queues->mutex);
    queues->requests[comm].push_back(*request);
    *request = comm;  // the same for every request of the comm
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
  net.close_recv = [&good, queues](void* comm) {
    {
      const std::lock_guard lock(queues->mutex);
      queues->requests.erase(comm);
    }
    return good.close_recv(comm);
  };
}

}  // namespace

// All receives of a comm have the same request.
MUTANT(one_request_for_all_receives, breaks("TS-05")) { use_one_request(net, good); }

// All receives of a comm have the same request, which NCCL only tests: maxRecvs is 1 and irecvConsumed is NULL.
VARIANT(one_request_for_each_comm) {
  use_one_request(net, good);
  net.table->irecvConsumed = nullptr;
  net.get_properties = one_buffer_per_receive(good);
}

// While receives of another comm are tested on the same thread, receives of a comm that complete are lost.
MUTANT(completions_of_others_lost, breaks("TS-07").also("PR-*", "XF-30", "XF-43")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result != Result::kSuccess || *request == nullptr) return result;
    tests.comms[*request] = comm;
    tests.others.emplace(comm, 0);
    return result;
  };
  net.test = [&good](void* request, int* done, int* sizes) {
    const auto tested = tests.comms.find(request);
    if (tested == tests.comms.end()) return good.test(request, done, sizes);
    *done = 0;
    if (tests.lost.count(request) != 0) return Result::kSuccess;
    void* const own = tested->second;
    for (auto& [comm, count] : tests.others) count += comm != own ? 1 : 0;
    const int missed = std::exchange(tests.others[own], 0);
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess || *done == 0) return result;
    if (missed > 5) {
      tests.lost.insert(request);
      *done = 0;
      return result;
    }
    tests.comms.erase(tested);
    const bool idle =
        std::none_of(tests.comms.begin(), tests.comms.end(), [&](auto& one) { return one.second == own; });
    if (idle) tests.others.erase(own);
    return result;
  };
  net.close_recv = [&good](void* comm) {
    std::erase_if(tests.comms, [comm](auto& one) { return one.second == comm; });
    tests.others.erase(comm);
    tests.lost.clear();
    return good.close_recv(comm);
  };
}

// irecvConsumed fails for receives that are done.
MUTANT(consumed_refuses_done_requests, breaks("FL-07").also("PR-*")) {
  auto live = std::make_shared<PointerMap<int>>();
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

// closeRecv aborts the process when the comm has receives outstanding.
MUTANT(close_aborts_during_receives, breaks("CL-03", "MR-11", "MR-12", "ER-11").also("CL-12", "ER-03")) {
  auto in_flight = InFlight::watch(net, good);
  net.close_recv = [&good, in_flight](void* comm) {
    if (in_flight->receives(comm) > 0) std::abort();
    return good.close_recv(comm);
  };
}

// closeSend breaks all open send comms of the process.
MUTANT(close_breaks_all_comms, breaks("CL-06", "MR-12", "MR-18", "CL-08").also("CN-24", "TH-03")) {
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

// isend and test never return an error.
MUTANT(errors_hidden, breaks("TS-09", "ER-04", "ER-09")
                          .also("XF-37", "TS-10", "CL-11", "ER-05", "ER-07")
                          .without_draw("rules wait for the errors of dead peers, 50 to 90 s each")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (good.isend(comm, data, size, tag, mhandle, request) != Result::kSuccess) *request = nullptr;
    return Result::kSuccess;
  };
  net.test = [&good](void* request, int* done, int* sizes) {
    if (good.test(request, done, sizes) != Result::kSuccess) *done = 0;
    return Result::kSuccess;
  };
}

// regMr returns InProgress instead of an error.
MUTANT(errors_returned_as_in_progress, breaks("ER-01")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    return result == Result::kSuccess ? result : Result::kInProgress;
  };
}

// Exits the process when isend, test or connect fails.
MUTANT(exits_on_error, breaks("ER-03", "TS-09", "ER-01", "ER-04", "ER-09")
                           .also("CN-12", "CN-18", "CN-21", "MR-12", "XF-11", "XF-37", "TS-10", "CL-04", "CL-11",
                                 "ER-02", "ER-05", "ER-06", "ER-07", "ER-11")) {
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

// test fails while another thread is in test.
MUTANT(one_thread_at_a_time, breaks("TH-02").also("XF-43")) {
  auto busy = std::make_shared<std::atomic<bool>>(false);
  net.test = [&good, busy](void* request, int* done, int* sizes) {
    if (busy->exchange(true)) return Result::kInternalError;
    sched_yield();
    const Result result = good.test(request, done, sizes);
    busy->store(false);
    return result;
  };
}

// listen fails while another thread has operations outstanding.
MUTANT(listen_fails_during_transfers, breaks("TH-03").also("CL-12", "CN-24", "ER-01", "MR-12", "MR-14", "XF-11")) {
  auto in_flight = InFlight::watch(net, good);
  net.listen = [&good, in_flight](void* context, int device, void* handle, void** comm) {
    if (in_flight->used_by_another_thread(nullptr)) return Result::kInternalError;
    return good.listen(context, device, handle, comm);
  };
}

}  // namespace plugfest::mutants
