// Mutants of the TS, FL and TH rules: what test reports, when requests complete, and which threads may test.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// test does not write *done while the operation is not done.
MUTANT(done_unwritten, breaks("TS-01").also("PR-*")) {
  net.test = [&good](Test test) {
    const int before = *test.done;
    const Result result = good.test(test);
    if (result == Result::kSuccess && *test.done == 0) *test.done = before;
    return result;
  };
}

// test writes *done as a value of one byte.
MUTANT(done_of_one_byte, breaks("TS-01").also("PR-*")) {
  net.test = [&good](Test test) {
    int whole = 0;
    const Result result = good.test({test.request, &whole, test.sizes});
    const auto byte = static_cast<unsigned char>(whole);
    std::memcpy(test.done, &byte, sizeof byte);
    return result;
  };
}

// test of a send of more than 16 MiB waits until it is done.
MUTANT(test_waits, breaks("TS-02")) {
  auto& large = kept<PointerSet>();
  on_success(net.isend, [&](Send send) {
    if (send.size > 16 << 20) large.insert(*send.request);
  });
  after(net.test, [&](Test test, Result result) {
    if (!large.erase(test.request)) return result;
    while (result == Result::kSuccess && *test.done == 0) result = good.test(test);
    return result;
  });
}

// test of a send of more than 16 MiB waits, once the send has begun, until it is done.
MUTANT(test_waits_in_mid_message, breaks("TS-02")) {
  auto& tests = kept<PointerMap<int>>();
  on_success(net.isend, [&](Send send) {
    if (send.size > 16 << 20) tests.put(*send.request, 0);
  });
  after(net.test, [&](Test test, Result result) {
    if (!tests.contains(test.request)) return result;
    const bool begun = tests.add(test.request, 1) > 1;
    while (begun && result == Result::kSuccess && *test.done == 0) result = good.test(test);
    if (result != Result::kSuccess || *test.done == 1) tests.erase(test.request);
    return result;
  });
}

// test accesses sizes without a NULL check.
MUTANT(null_sizes_dereferenced, breaks("TS-03")) {
  on_success(net.test, [](Test test) {
    volatile int* const first = test.sizes;
    *first = *first;
  });
}

// test never writes sizes.
MUTANT(sizes_never_written, breaks("TS-04", "XF-09", "XF-26", "XF-41").also("TH-02")) {
  before(net.test, [](Test& test) { test.sizes = nullptr; });
}

namespace {

// irecv returns the same request for all receives of a comm; test tests the oldest of them.
void use_one_request(Net& net) {
  auto& queues = kept<PointerMap<std::deque<void*>>>();  // by comm, oldest first
  on_success(net.irecv, [&](Receive receive) {
    queues.change(receive.comm, [&](auto& queue) { return queue.emplace_back(*receive.request); });
    *receive.request = receive.comm;  // the same for every request of the comm
  });
  net.test = [&queues, good = net.test](Test test) {
    const std::deque<void*> queue = queues.find(test.request).value_or(std::deque<void*>());
    if (queue.empty()) return good(test);
    const Result result = good({queue.front(), test.done, test.sizes});
    if (result == Result::kSuccess && *test.done == 1)
      queues.change(test.request, [](auto& requests) { return requests.pop_front(); });
    return result;
  };
  before(net.close_recv, [&](void* comm) { queues.erase(comm); });
}

}  // namespace

// All receives of a comm have the same request.
MUTANT(one_request_for_all_receives, breaks("TS-05")) { use_one_request(net); }

// All receives of a comm have the same request. NCCL only tests it, since maxRecvs is 1 and irecvConsumed is NULL.
MUTANT(one_request_for_each_comm, breaks().also("TS-05")) {
  use_one_request(net);
  net.table->irecvConsumed = nullptr;
  accept_one_buffer_per_receive(net);
}

// Test completes only the newest of the receives of more than 64 KiB.
MUTANT(only_newest_request_completes, breaks("TS-06")
                                          .also("ER-09", "ER-10", "MR-*", "PR-*", "XF-*")
                                          .because("any rule with two requests in flight may test the older one")) {
  auto& newest = kept<PointerMap<void*>>();
  auto& owners = kept<PointerMap<void*>>();
  on_success(net.irecv, [&](Receive receive) {
    if (receive.sizes[0] <= 65536) return;
    newest.put(receive.comm, *receive.request);
    owners.put(*receive.request, receive.comm);
  });
  on_success(net.test, [&](Test test) {
    if (const auto comm = owners.take(test.request)) newest.erase(*comm);
  });
  delay(net.test, [&](Test test) {
    const auto comm = owners.find(test.request);
    return comm && newest.find(*comm).value_or(test.request) != test.request;
  });
}

namespace {

// Tests of receives on one thread.
struct ReceiveTests {
  std::map<void*, void*> comms;  // by outstanding receive
  std::map<void*, int> others;   // by comm with receives outstanding: tests of other comms since its last test
  std::set<void*> lost;          // receives
};
thread_local ReceiveTests tests;

}  // namespace

// While receives of another comm are tested on the same thread, receives of a comm that complete are lost.
MUTANT(completions_of_others_lost, breaks("TS-07").also("PR-*", "XF-12", "XF-30", "XF-43")) {
  on_success(net.irecv, [](Receive receive) {
    tests.comms[*receive.request] = receive.comm;
    tests.others.emplace(receive.comm, 0);
  });
  net.test = [&good](Test test) {
    const auto tested = tests.comms.find(test.request);
    if (tested == tests.comms.end()) return good.test(test);
    *test.done = 0;
    if (tests.lost.count(test.request) != 0) return Result::kSuccess;
    void* const own = tested->second;
    for (auto& [comm, count] : tests.others) count += comm != own ? 1 : 0;
    const int missed = std::exchange(tests.others[own], 0);
    const Result result = good.test(test);
    if (result != Result::kSuccess || *test.done == 0) return result;
    if (missed > 5) {
      tests.lost.insert(test.request);
      *test.done = 0;
      return result;
    }
    tests.comms.erase(tested);
    const bool idle =
        std::none_of(tests.comms.begin(), tests.comms.end(), [&](auto& one) { return one.second == own; });
    if (idle) tests.others.erase(own);
    return result;
  };
  before(net.close_recv, [](void* comm) {
    std::erase_if(tests.comms, [comm](auto& one) { return one.second == comm; });
    tests.others.erase(comm);
    tests.lost.clear();
  });
}

// test fails for a receive that is not the oldest of its comm.
MUTANT(only_oldest_receive_testable, breaks("TS-08")) {
  auto& queues = kept<PointerMap<std::deque<void*>>>();  // by comm, oldest first
  auto& comms = comms_of_requests(net.irecv);
  on_success(net.irecv, [&](Receive receive) {
    queues.change(receive.comm, [&](auto& queue) { return queue.emplace_back(*receive.request); });
  });
  on_success(net.test, [&](Test test) {
    if (const auto comm = comms.take(test.request)) queues.change(*comm, [](auto& queue) { return queue.pop_front(); });
  });
  refuse(net.test, Result::kInternalError, [&](Test test) {
    const auto comm = comms.find(test.request);
    return comm && queues.change(*comm, [&](auto& queue) { return queue.front() != test.request; });
  });
  before(net.close_recv, [&](void* closed) {
    queues.erase(closed);
    comms.erase_if([&](void* comm) { return comm == closed; });
  });
}

// test of NULL fails an assertion.
MUTANT(null_request_aborts, breaks("TS-10")) {
  abort_if(net.test, [](Test test) { return test.request == nullptr; });
}

// test returns InProgress for an operation that is not done.
MUTANT(not_done_returned_as_in_progress, breaks("TS-11").also("ER-01")) { return_in_progress(net.test); }

// Each test of an operation that is not done keeps 16 bytes.
MUTANT(test_leaks_memory, breaks("TS-12")) {
  on_pending(net.test, [](Test) { leak(16); });
}

// Each test of an operation that is not done logs a warning.
MUTANT(test_logs, breaks("TS-12").also("IN-13", "ER-07")) {
  static std::atomic<abi::Logger> logger{nullptr};
  before(net.init, [](Init init) { logger = init.logger; });
  on_pending(net.test, [](Test test) {
    logger.load()(abi::kLogWarn, abi::kLogNet, "mutant", 1, "request %p waits", test.request);
  });
}

// iflush uses the request to which *request points.
MUTANT(flush_reads_request, breaks("FL-02", "FL-04").also("TS-03", "MR-09")) {
  report_cuda_memory(net);
  net.iflush = [](Flush flush) {
    [[maybe_unused]] const char first = *static_cast<volatile char*>(*flush.request);
    return Result::kSuccess;
  };
}

// iflush fails while a receive is in flight on the comm.
MUTANT(flush_fails_during_receives, breaks("FL-04").also("MR-09")) {
  InFlight& in_flight = InFlight::watch(net);
  report_cuda_memory(net);
  net.iflush = [&](Flush flush) {
    return in_flight.receives(flush.comm) > 0 ? Result::kInternalError : Result::kSuccess;
  };
}

// iflush aborts the process, since the plugin has no GPU.
MUTANT(flush_of_host_memory_aborts, breaks("FL-06")) {
  before(net.iflush, [](Flush) { std::abort(); });
}

// irecvConsumed fails for receives that are done.
MUTANT(consumed_refuses_done_requests, breaks("FL-07")
                                           .also("CL-*", "CN-*", "DP-*", "EE-*", "ER-*", "FL-*", "IN-*", "MR-*", "PF-*",
                                                 "PR-*", "SK-*", "TH-*", "TS-*", "XF-*")
                                           .because("each rule that completes receives calls irecvConsumed for them")) {
  auto& live = kept<PointerMap<int>>();
  on_success(net.irecv, [&](Receive receive) { live.put(*receive.request, receive.n); });
  on_success(net.test, [&](Test test) { live.erase(test.request); });
  refuse(net.irecv_consumed, Result::kInternalError,
         [&](Consumed call) { return live.find(call.request).value_or(-1) != call.n; });
}

// test fails while another thread is in test.
MUTANT(one_thread_at_a_time, breaks("TH-02").also("XF-43")) {
  static std::atomic<bool> busy{false};
  net.test = [&good](Test test) {
    if (busy.exchange(true)) return Result::kInternalError;
    const Result result = good.test(test);
    busy.store(false);
    return result;
  };
}

// irecv keeps its argument arrays in static memory.
MUTANT(static_arguments_of_irecv, breaks("TH-02")) {
  struct Arguments {
    std::array<void*, abi::kMaxReceiveBuffers> data, mhandles;
    std::array<std::size_t, abi::kMaxReceiveBuffers> sizes;
    std::array<int, abi::kMaxReceiveBuffers> tags;
  };
  auto& arguments = kept<Arguments>();
  before(net.irecv, [&](Receive& receive) {
    const auto keep = [n = std::min(receive.n, abi::kMaxReceiveBuffers)](auto*& from, auto& to) {
      std::copy_n(from, n, to.data());
      from = to.data();
    };
    keep(receive.data, arguments.data);
    keep(receive.mhandles, arguments.mhandles);
    keep(receive.sizes, arguments.sizes);
    keep(receive.tags, arguments.tags);
  });
}

// All comms take their requests from one pool without a lock.
MUTANT(unlocked_request_pool, breaks("TH-02")) {
  struct Pool {
    std::array<void*, 1024> requests{};
    std::size_t next = 0;
  };
  auto& pool = kept<Pool>();
  const auto take = [&pool](auto call) {
    void*& request = pool.requests[pool.next];
    request = *call.request;
    pool.next = (pool.next + 1) % pool.requests.size();
    *call.request = &request;
  };
  const auto find = [&pool](auto& call) {
    auto* const request = static_cast<void**>(call.request);
    if (request >= pool.requests.data() && request < pool.requests.data() + pool.requests.size())
      call.request = *request;
  };
  on_success(net.isend, take);
  on_success(net.irecv, take);
  before(net.test, find);
  before(net.irecv_consumed, find);
}

// listen fails while another thread has operations outstanding.
MUTANT(listen_fails_during_transfers,
       breaks("TH-03")
           .also("CL-*", "CN-24", "ER-01", "MR-12", "MR-14", "MR-20", "TS-*", "XF-*")
           .because("any rule may connect while another thread has a receive outstanding")) {
  InFlight& in_flight = InFlight::watch(net);
  refuse(net.listen, Result::kInternalError, [&](Listen) { return in_flight.used_by_another_thread(); });
}

}  // namespace plugfest::mutants
