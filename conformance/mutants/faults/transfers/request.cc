// Mutants of the TS and FL rules about single requests, and faults of requests that show in XF rules.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// test fails for a receive that is not the oldest of its comm.
MUTANT(only_oldest_receive_testable, breaks("TS-08")) {
  struct Queues {
    std::mutex mutex;
    std::map<void*, std::deque<void*>> requests;  // by comm, oldest first
    std::map<void*, void*> comms;                 // by request
  };
  auto queues = std::make_shared<Queues>();
  net.irecv = [&good, queues](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                              void** request) {
    const std::lock_guard lock(queues->mutex);
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result != Result::kSuccess || *request == nullptr) return result;
    queues->requests[comm].push_back(*request);
    queues->comms[*request] = comm;
    return result;
  };
  net.test = [&good, queues](void* request, int* done, int* sizes) {
    const std::lock_guard lock(queues->mutex);
    const auto comm = queues->comms.find(request);
    if (comm == queues->comms.end()) return good.test(request, done, sizes);
    std::deque<void*>& requests = queues->requests[comm->second];
    if (requests.front() != request) return Result::kInternalError;
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 1) {
      requests.pop_front();
      queues->comms.erase(comm);
    }
    return result;
  };
  net.close_recv = [&good, queues](void* comm) {
    {
      const std::lock_guard lock(queues->mutex);
      queues->requests.erase(comm);
      std::erase_if(queues->comms, [&](const auto& entry) { return entry.second == comm; });
    }
    return good.close_recv(comm);
  };
}

// test of NULL fails an assertion.
MUTANT(null_request_aborts, breaks("TS-10")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    if (request == nullptr) std::abort();
    return good.test(request, done, sizes);
  };
}

// test returns InProgress for an operation that is not done.
MUTANT(not_done_returned_as_in_progress, breaks("TS-11", "ER-01")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    return result == Result::kSuccess && *done == 0 ? Result::kInProgress : result;
  };
}

// Each test of an operation that is not done keeps 1 KiB.
MUTANT(test_leaks_memory, breaks("TS-12")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 0) {
      constexpr std::size_t kSize = 1024;
      static std::vector<void*> kept;
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      kept.push_back(std::memset(std::malloc(kSize), 1, kSize));
    }
    return result;
  };
}

// Each test of an operation that is not done writes a log line.
MUTANT(test_logs, breaks("TS-12")) {
  auto logger = std::make_shared<abi::Logger>(nullptr);
  net.init = [&good, logger](void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, abi::Logger log,
                             abi::ProfilerCallback profiler) {
    *logger = log;
    return good.init(context, comm_id, config, log, profiler);
  };
  net.test = [&good, logger](void* request, int* done, int* sizes) {
    constexpr int kInfo = 3;
    constexpr unsigned long kNet = 0x10;
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 0) (*logger)(kInfo, kNet, "mutant", 1, "request %p waits", request);
    return result;
  };
}

namespace {

/// getProperties of `good` with the CUDA bit.
std::function<Result(int device, Properties* properties)> with_cuda_bit(const Net& good) {
  return [&good](int device, Properties* properties) {
    constexpr int kCuda = 2;
    const Result result = good.get_properties(device, properties);
    properties->ptrSupport |= kCuda;
    return result;
  };
}

}  // namespace

// iflush uses the request that *request points to.
MUTANT(flush_reads_request, breaks("FL-02", "FL-04").also("TS-03", "MR-09")) {
  net.get_properties = with_cuda_bit(good);
  net.iflush = [](void*, int, void**, int*, void**, void** request) {
    [[maybe_unused]] const char first = *static_cast<volatile char*>(*request);
    return Result::kSuccess;
  };
}

// iflush fails while a receive is in flight on the comm.
MUTANT(flush_fails_during_receives, breaks("FL-04").also("MR-09")) {
  auto in_flight = InFlight::watch(net, good);
  net.get_properties = with_cuda_bit(good);
  net.iflush = [in_flight](void* comm, int, void**, int*, void**, void**) {
    return in_flight->receives(comm) > 0 ? Result::kInternalError : Result::kSuccess;
  };
}

// iflush aborts the process, since the plugin has no GPU.
MUTANT(flush_of_host_memory_aborts, breaks("FL-06", "TS-03")) {
  net.iflush = [](auto...) -> Result { std::abort(); };
}

// The done flag of a slot of 5000 bytes is not cleared when the next receive of the comm uses the slot.
MUTANT(stale_completion_flag, breaks("XF-05").also("XF-12", "XF-17", "XF-22")) {
  auto comms = std::make_shared<PointerMap<void*>>();  // by request
  auto used = std::make_shared<PointerMap<bool>>();    // by comm: its slot holds a done flag
  auto stale = std::make_shared<PointerMap<bool>>();   // by request
  net.irecv = [=, &good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** slot) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, slot);
    void* const request = *slot;
    if (result != Result::kSuccess || request == nullptr) return result;
    stale->erase(request);
    if (n != 1 || sizes[0] != 5000) {
      comms->erase(request);
      return result;
    }
    comms->put(request, comm);
    if (used->find(comm)) stale->put(request, true);
    used->erase(comm);
    return result;
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess) return result;
    if (stale->find(request)) *done = 1;
    stale->erase(request);
    if (const auto comm = comms->find(request); comm && *done == 1) used->put(*comm, true);
    return result;
  };
}

// Message numbers have 10 bits: the message after the first 1024 of a comm counts as received before.
MUTANT(message_number_wraps_at_1024,
       breaks("XF-06").also("CN-24", "MR-14", "XF-19", "XF-22", "XF-36", "CL-08", "TH-03")) {
  auto counts = std::make_shared<PointerMap<int>>();    // receives, by comm
  auto wrapped = std::make_shared<PointerMap<bool>>();  // by request
  net.irecv = [=, &good](void* comm, int n, auto... arguments) {
    const Result result = good.irecv(comm, n, arguments...);
    void* const request = *std::get<sizeof...(arguments) - 1>(std::make_tuple(arguments...));
    if (result != Result::kSuccess || request == nullptr) return result;
    if (counts->change(comm, [](int& count) { return ++count; }) == 1025) {
      wrapped->put(request, true);
    } else {
      wrapped->erase(request);
    }
    return result;
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 1 && wrapped->find(request)) return Result::kInternalError;
    return result;
  };
  net.close_recv = [=, &good](void* comm) {
    counts->erase(comm);
    return good.close_recv(comm);
  };
}

// With more than 16 receives in flight, the completion of one is credited to a slot without a request.
MUTANT(completion_on_unused_slot, breaks("XF-07")) {
  auto in_flight = InFlight::watch(net, good);
  auto lost = std::make_shared<PointerMap<bool>>();
  net.irecv = [=, irecv = net.irecv](void* comm, int n, auto... arguments) {
    const Result result = irecv(comm, n, arguments...);
    void* const request = *std::get<sizeof...(arguments) - 1>(std::make_tuple(arguments...));
    if (result == Result::kSuccess && request != nullptr && in_flight->receives(comm) == 17) lost->put(request, true);
    return result;
  };
  net.test = [=, test = net.test](void* request, int* done, int* sizes) {
    if (lost->find(request)) {
      *done = 0;
      return Result::kSuccess;
    }
    return test(request, done, sizes);
  };
}

// The last tag of a large group is read before it has arrived, and taken for 0.
MUTANT(half_arrived_tag_read_as_0,
       breaks("XF-23").also("FL-07", "PR-*", "XF-07", "XF-12", "XF-14", "XF-22", "XF-24", "XF-26", "XF-29", "XF-41")) {
  auto groups = std::make_shared<PointerMap<int>>();
  net.irecv = [&good, groups](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                              void** request) {
    std::vector<int> read(tags, tags + n);
    if (n > 2 && groups->change(comm, [](int& count) { return ++count; }) % 3 == 0) read.back() = 0;
    return good.irecv(comm, n, data, sizes, read.data(), mhandles, request);
  };
}

}  // namespace plugfest::mutants
