// Mutants of the XF rules about memory, the request's slot, and calls that must not wait.
#include <atomic>
#include <memory>

#include "conformance/mutants/in_flight.h"
#include "conformance/mutants/ledger.h"
#include "conformance/mutants/mutant.h"
#include "conformance/mutants/posted_receive.h"

namespace plugfest::mutants {

// Leaves *request as it is when it cannot post.
MUTANT(not_now_stores_nothing, breaks("XF-02")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    void* const before = *request;
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request == nullptr) *request = before;
    return result;
  };
}

// Waits in isend until the receiver is ready and the message is on its way.
MUTANT(isend_waits, breaks("XF-03")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    Result result = Result::kSuccess;
    do {
      result = good.isend(comm, data, size, tag, mhandle, request);
    } while (result == Result::kSuccess && *request == nullptr);
    return result;
  };
}

// Ends every short message with a zero of its own.
MUTANT(messages_end_with_a_zero, breaks("XF-10")) {
  at_end_of_receive(net, good, [](const PostedReceive& receive, int* sizes) {
    if (sizes == nullptr || static_cast<std::size_t>(sizes[0]) >= receive.sizes[0]) return;
    static_cast<char*>(receive.data[0])[sizes[0]] = 0;
  });
}

// Takes the length of a message from the sender.
MUTANT(receives_have_no_end, breaks("XF-11")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<std::size_t> longer(sizes, sizes + n);
    if (n == 1 && sizes[0] == 1000) longer[0] = 60000;
    return good.irecv(comm, n, data, longer.data(), tags, mhandles, request);
  };
}

// Says that a send is done before it has left, and drops it when the comm is closed.
MUTANT(sends_done_before_they_leave, breaks("XF-16", "CL-02")) {
  struct Late {
    std::mutex mutex;
    std::map<const void*, HeldRequest*> of_comm;
    std::map<void*, std::size_t> sizes;
  };
  auto late = std::make_shared<Late>();
  auto held_requests = std::make_shared<HeldRequests>();
  net.isend = [&good, late, held_requests](void* comm, void* data, std::size_t size, int tag, void* mhandle,
                                           void** request) {
    const std::lock_guard lock(late->mutex);
    HeldRequest*& waiting = late->of_comm[comm];
    if (waiting != nullptr && waiting->hand_on() != Result::kSuccess) return Result::kSystemError;
    if (waiting != nullptr && !waiting->posted) {
      *request = nullptr;
      return Result::kSuccess;
    }
    waiting = held_requests->hold([&good, comm, data, size, tag, mhandle](void** real) {
      return good.isend(comm, data, size, tag, mhandle, real);
    });
    late->sizes[waiting] = size;
    *request = waiting;
    return Result::kSuccess;
  };
  net.test = [&good, late](void* request, int* done, int* sizes) {
    const std::lock_guard lock(late->mutex);
    auto held = late->sizes.find(request);
    if (held == late->sizes.end()) return good.test(request, done, sizes);
    *done = 1;
    if (sizes != nullptr) *sizes = static_cast<int>(held->second);
    return Result::kSuccess;
  };
}

// Stores the mark of optional completion where a request belongs.
MUTANT(mark_stored_for_a_request, breaks("XF-19")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    void* const mark = reinterpret_cast<void*>(abi::kOptionalRecvCompletion);
    const bool marked = *request == mark;
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (marked) *request = mark;
    return result;
  };
}

// Sends nothing anywhere while one connection waits for its receiver.
MUTANT(one_waiting_connection_stops_all, breaks("XF-30")) {
  auto waiting = std::make_shared<std::atomic<void*>>(nullptr);
  net.isend = [&good, waiting](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    void* const holder = waiting->load();
    if (holder != nullptr && holder != comm) {
      *request = nullptr;
      return Result::kSuccess;
    }
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    waiting->store(result == Result::kSuccess && *request == nullptr ? comm : nullptr);
    return result;
  };
}

// Sends nothing while a receive is out: half duplex.
MUTANT(half_duplex, breaks("XF-31")) {
  auto in_flight = InFlight::watch(net, good);
  auto watched = net.isend;
  net.isend = [watched, in_flight](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (in_flight->receives() > 0) {
      *request = nullptr;
      return Result::kSuccess;
    }
    return watched(comm, data, size, tag, mhandle, request);
  };
}

}  // namespace plugfest::mutants
