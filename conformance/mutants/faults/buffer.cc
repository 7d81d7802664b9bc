// Mutants of the XF rules about memory, *request, and calls that must not wait.
#include <atomic>
#include <memory>

#include "conformance/mutants/faults/held_request.h"
#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/posted_receive.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// isend does not write *request when it cannot post.
MUTANT(request_unwritten_when_deferred, breaks("XF-02")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    void* const before = *request;
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request == nullptr && size == 256) *request = before;
    return result;
  };
}

// isend of more than 8 MiB waits until the receive is posted.
MUTANT(isend_waits, breaks("XF-03")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    Result result = Result::kSuccess;
    do {
      result = good.isend(comm, data, size, tag, mhandle, request);
    } while (result == Result::kSuccess && *request == nullptr && size > 8 << 20);
    return result;
  };
}

// isend waits until a message of more than 1 MiB is sent.
MUTANT(isend_waits_until_sent, breaks("XF-03").also("XF-16", "TS-09", "ER-10")) {
  auto held_requests = std::make_shared<HeldRequests>();
  held_requests->install(net, good);
  net.isend = [&good, held_requests](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result != Result::kSuccess || *request == nullptr || size <= 1 << 20) return result;
    int done = 0, sent = 0;
    while (result == Result::kSuccess && done == 0) result = good.test(*request, &done, &sent);
    *request = held_requests->hold({});
    return result;
  };
}

// Writes a zero byte behind each message that is shorter than its receive.
MUTANT(zero_written_behind_message, breaks("XF-10", "XF-06", "XF-09", "XF-12")) {
  when_receive_done(net, good, [](const PostedReceive& receive, int* sizes) {
    if (sizes == nullptr || static_cast<std::size_t>(sizes[0]) >= receive.sizes[0]) return;
    static_cast<char*>(receive.data[0])[sizes[0]] = 0;
  });
}

// irecv that ends up to 15 bytes before a page lets a message write 70 bytes past its end, where memory is registered.
MUTANT(receive_size_ignored, breaks("XF-11")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<std::size_t> longer(sizes, sizes + n);
    if (n == 1 && sizes[0] % 4096 > 4080) longer[0] += 70;
    const Result result = good.irecv(comm, n, data, longer.data(), tags, mhandles, request);
    return result == Result::kSuccess ? result : good.irecv(comm, n, data, sizes, tags, mhandles, request);
  };
}

// irecv rounds the size of a receive of up to 64 KiB up to 64 bytes, where the memory is registered.
MUTANT(receive_size_rounded_up, breaks("XF-11")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<std::size_t> rounded(sizes, sizes + n);
    for (std::size_t& size : rounded) size = size <= 65536 ? (size + 63) / 64 * 64 : size;
    const Result result = good.irecv(comm, n, data, rounded.data(), tags, mhandles, request);
    return result == Result::kSuccess ? result : good.irecv(comm, n, data, sizes, tags, mhandles, request);
  };
}

// test reports a send of more than 4 MiB as done as soon as it is posted.
MUTANT(sends_done_when_posted, breaks("XF-16")) {
  auto held_requests = std::make_shared<HeldRequests>();
  held_requests->install(net, good);
  net.isend = [&good, held_requests](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request != nullptr && size > 4 << 20) *request = held_requests->hold({});
    return result;
  };
}

// test reports sends of more than 64 KiB as done before they are posted, which the next isend does. closeSend drops
// the last one.
MUTANT(sends_done_before_posted,
       breaks("XF-16", "CL-02")
           .also("CL-08", "CL-12", "ER-02", "ER-04", "ER-06", "ER-09", "CL-11", "TS-09", "XF-39", "TS-02", "TS-06",
                 "XF-01", "CN-15", "CN-28", "CN-33", "DP-20", "ER-05", "ER-07", "ER-10", "IN-08", "IN-13", "IN-16",
                 "IN-17", "MR-01", "MR-05", "MR-13", "PR-*", "XF-03", "XF-10", "XF-18", "XF-30", "XF-31", "XF-33",
                 "XF-37")) {
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
    if (waiting != nullptr && waiting->forward() != Result::kSuccess) return Result::kSystemError;
    if (waiting != nullptr && !waiting->posted) {
      *request = nullptr;
      return Result::kSuccess;
    }
    if (size <= 65536) return good.isend(comm, data, size, tag, mhandle, request);
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
  net.close_send = [&good, late](void* comm) {
    {
      const std::lock_guard lock(late->mutex);
      late->of_comm.erase(comm);
    }
    return good.close_send(comm);
  };
}

// irecv stores the mark of optional completion in *request.
MUTANT(mark_stored_as_request, breaks("XF-19").also("PR-*")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    void* const mark = reinterpret_cast<void*>(abi::kOptionalRecvCompletion);
    const bool marked = *request == mark;
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (marked) *request = mark;
    return result;
  };
}

// A receive that follows a marked one on its comm is done at once, as if it were marked.
MUTANT(mark_inherited, breaks("XF-19").also("PR-*")) {
  auto marked = std::make_shared<PointerMap<bool>>();
  auto early = std::make_shared<PointerMap<bool>>();
  net.irecv = [=, &good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                         void** request) {
    const bool is_marked = *request == reinterpret_cast<void*>(abi::kOptionalRecvCompletion);
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result != Result::kSuccess || *request == nullptr) return result;
    if (!is_marked && marked->find(comm)) early->put(*request, true);
    marked->erase(comm);
    if (is_marked) marked->put(comm, true);
    return result;
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess || !early->find(request)) return result;
    early->erase(request);
    *done = 1;
    return result;
  };
}

// While one comm has a deferred send, isend defers the sends of all other comms.
MUTANT(deferred_send_blocks_other_comms, breaks("XF-30").also("PR-*", "XF-38")) {
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

// isend defers sends of 1 to 8 MiB while any receive is outstanding.
MUTANT(half_duplex, breaks("XF-31").also("PR-*")) {
  auto in_flight = InFlight::watch(net, good);
  auto watched = net.isend;
  net.isend = [watched, in_flight](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (size >= 1 << 20 && size <= 8 << 20 && in_flight->receives() > 0) {
      *request = nullptr;
      return Result::kSuccess;
    }
    return watched(comm, data, size, tag, mhandle, request);
  };
}

}  // namespace plugfest::mutants
