// Mutants of the XF rules about memory, *request, and calls that must not wait.
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Makes irecv post receives with the sizes that `change(sizes)` produces, where the memory is registered.
template <typename Change>
void change_receive_sizes(Net& net, Change change) {
  net.irecv = [change, good = net.irecv](Receive receive) {
    CopiedReceive changed(receive);
    change(changed.sizes);
    const Result result = changed.post(good, receive.request);
    return result == Result::kSuccess ? result : good(receive);
  };
}

}  // namespace

// isend does not write *request when it cannot post.
MUTANT(request_unwritten_when_deferred, breaks("XF-02")) {
  net.isend = [&good](Send send) {
    void* const before = *send.request;
    const Result result = good.isend(send);
    if (result == Result::kSuccess && *send.request == nullptr && send.size == 256) *send.request = before;
    return result;
  };
}

// isend of more than 8 MiB waits until the receive is posted.
MUTANT(isend_waits, breaks("XF-03")) {
  after(net.isend, [&good](Send send, Result result) {
    while (result == Result::kSuccess && *send.request == nullptr && send.size > 8 << 20) result = good.isend(send);
    return result;
  });
}

// isend waits until a message of more than 1 MiB is sent.
MUTANT(isend_waits_until_sent, breaks("XF-03").also("CL-11", "XF-16", "TS-09", "ER-09", "ER-10")) {
  HeldRequests& held_requests = HeldRequests::install(net);
  net.isend = [&](Send send) {
    Result result = good.isend(send);
    if (result != Result::kSuccess || *send.request == nullptr || send.size <= 1 << 20) return result;
    int done = 0, sent = 0;
    while (result == Result::kSuccess && done == 0) result = good.test({*send.request, &done, &sent});
    *send.request = held_requests.done();
    return result;
  };
}

// Writes a zero byte behind each message that is shorter than its receive.
MUTANT(zero_written_behind_message, breaks("XF-10", "XF-06", "XF-09", "XF-12")) {
  when_receive_done(net, [](const PostedReceive& receive, int* sizes) {
    if (sizes == nullptr || static_cast<std::size_t>(sizes[0]) >= receive.sizes[0]) return;
    static_cast<char*>(receive.data[0])[sizes[0]] = 0;
  });
}

// irecv that ends up to 15 bytes before a page lets a message write 70 bytes past its end, where memory is registered.
MUTANT(receive_size_ignored, breaks("XF-11")) {
  change_receive_sizes(net, [](std::vector<std::size_t>& sizes) {
    if (sizes.size() == 1 && sizes[0] % 4096 > 4080) sizes[0] += 70;
  });
}

// irecv rounds the size of a receive of up to 64 KiB up to 64 bytes, where the memory is registered.
MUTANT(receive_size_rounded_up, breaks("XF-11")) {
  change_receive_sizes(net, [](std::vector<std::size_t>& sizes) {
    for (std::size_t& size : sizes) size = size <= 65536 ? (size + 63) / 64 * 64 : size;
  });
}

// irecv cuts sizes to 32 bits.
MUTANT(receive_size_cut_to_32_bits, breaks("XF-39")) {
  change_receives(net, [](CopiedReceive& receive) {
    for (std::size_t& size : receive.sizes) size = static_cast<std::uint32_t>(size);
  });
}

// irecv clears the sizes of its caller.
MUTANT(receive_sizes_cleared, breaks("XF-15")) {
  after(net.irecv, [](Receive receive, Result result) {
    std::fill(receive.sizes, receive.sizes + receive.n, 0);
    return result;
  });
}

// test reports a send of more than 4 MiB as done as soon as it is posted.
MUTANT(sends_done_when_posted, breaks("XF-16")) {
  HeldRequests& held_requests = HeldRequests::install(net);
  on_success(net.isend, [&](Send send) {
    if (send.size > 4 << 20) *send.request = held_requests.done();
  });
}

// test reports sends of more than 64 KiB as done before the next isend posts them. closeSend drops the last one.
MUTANT(sends_done_before_posted,
       breaks("XF-16", "CL-02")
           .also("CL-08", "CL-12", "ER-02", "ER-04", "ER-06", "ER-09", "CL-11", "TS-09", "XF-39", "TS-02", "TS-06",
                 "XF-01", "CN-15", "CN-28", "CN-33", "DP-20", "ER-05", "ER-07", "ER-10", "IN-08", "IN-13", "IN-16",
                 "IN-17", "MR-01", "MR-05", "MR-13", "PR-*", "XF-03", "XF-10", "XF-18", "XF-30", "XF-31", "XF-33",
                 "XF-37")
           .because("each message of more than 64 KiB is late, and lost if no other follows")) {
  struct Late {
    std::mutex mutex;
    std::map<const void*, HeldRequest*> of_comm;
    std::map<void*, std::size_t> sizes;
  };
  auto& late = kept<Late>();
  auto& held_requests = kept<HeldRequests>();
  net.isend = [&](Send send) {
    const std::lock_guard lock(late.mutex);
    HeldRequest*& waiting = late.of_comm[send.comm];
    if (waiting != nullptr && waiting->forward() != Result::kSuccess) return Result::kSystemError;
    if (waiting != nullptr && !waiting->posted) {
      *send.request = nullptr;
      return Result::kSuccess;
    }
    if (send.size <= 65536) return good.isend(send);
    waiting = held_requests.hold(send, good.isend);
    late.sizes[waiting] = send.size;
    *send.request = waiting;
    return Result::kSuccess;
  };
  net.test = [&](Test test) {
    const std::lock_guard lock(late.mutex);
    auto held = late.sizes.find(test.request);
    if (held == late.sizes.end()) return good.test(test);
    *test.done = 1;
    if (test.sizes != nullptr) *test.sizes = static_cast<int>(held->second);
    return Result::kSuccess;
  };
  before(net.close_send, [&](void* comm) {
    const std::lock_guard lock(late.mutex);
    late.of_comm.erase(comm);
  });
}

namespace {

// *request of a receive with optional completion.
void* const kMark = reinterpret_cast<void*>(abi::kOptionalRecvCompletion);

}  // namespace

// irecv stores the mark of optional completion in *request.
MUTANT(mark_stored_as_request, breaks("XF-19").also("PR-*")) {
  net.irecv = [&good](Receive receive) {
    const bool marked = *receive.request == kMark;
    const Result result = good.irecv(receive);
    if (marked) *receive.request = kMark;
    return result;
  };
}

// A receive after one with optional completion on the same comm is done at once, as if it were optional too.
MUTANT(mark_inherited, breaks("XF-19").also("PR-*")) {
  auto& marked = kept<PointerSet>();
  auto& early = kept<PointerSet>();
  net.irecv = [&](Receive receive) {
    const bool is_marked = *receive.request == kMark;
    const Result result = good.irecv(receive);
    if (result != Result::kSuccess || *receive.request == nullptr) return result;
    if (!is_marked && marked.contains(receive.comm)) early.insert(*receive.request);
    marked.erase(receive.comm);
    if (is_marked) marked.insert(receive.comm);
    return result;
  };
  after(net.test, [&](Test test, Result result) {
    if (result == Result::kSuccess && early.erase(test.request)) *test.done = 1;
    return result;
  });
}

// All comms of the process share 8 receives with optional completion.
MUTANT(optional_completions_shared_by_comms, breaks("PR-02").also("PR-*")) {
  constexpr int kMax = 8;
  auto& count = kept<std::atomic<int>>();
  auto& receives = kept<PointerSet>();
  net.irecv = [&](Receive receive) {
    const bool optional = receive.n == 1 && *receive.request == kMark;
    if (optional && count >= kMax) return Result::kInternalError;
    const Result result = good.irecv(receive);
    if (optional && result == Result::kSuccess && *receive.request != nullptr) {
      receives.insert(*receive.request);
      ++count;
    }
    return result;
  };
  on_end(net, [&](Test test) {
    if (receives.erase(test.request)) --count;
  });
}

// While one comm has a deferred send, isend defers the sends of all other comms.
MUTANT(deferred_send_blocks_other_comms, breaks("XF-30").also("PR-*", "XF-38")) {
  static std::atomic<void*> waiting{nullptr};
  after(net.isend, [](Send send, Result result) {
    waiting = result == Result::kSuccess && *send.request == nullptr ? send.comm : nullptr;
    return result;
  });
  delay(net.isend, [](Send send) {
    void* const holder = waiting;
    return holder != nullptr && holder != send.comm;
  });
}

// While a send is deferred, isend defers the comm's sends with other tags.
MUTANT(deferred_send_blocks_other_tags, breaks("XF-25").also("PR-*", "XF-40")) {
  auto& waiting = kept<PointerMap<int>>();  // tags, by comm
  after(net.isend, [&](Send send, Result result) {
    waiting.erase(send.comm);
    if (result == Result::kSuccess && *send.request == nullptr) waiting.put(send.comm, send.tag);
    return result;
  });
  delay(net.isend, [&](Send send) { return waiting.find(send.comm).value_or(send.tag) != send.tag; });
}

// isend defers sends of 1 to 8 MiB while any receive is outstanding.
MUTANT(half_duplex, breaks("XF-31").also("PR-*", "XF-16")) {
  InFlight& in_flight = InFlight::watch(net);
  delay(net.isend, [&](Send send) { return send.size >= 1 << 20 && send.size <= 8 << 20 && in_flight.receives() > 0; });
}

}  // namespace plugfest::mutants
