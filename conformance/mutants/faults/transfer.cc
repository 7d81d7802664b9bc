// Mutants of the XF rules about single messages: their order, sizes and arguments.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// Corrupts the last byte of receives of more than 64 KiB.
MUTANT(last_byte_corrupted, breaks("XF-01")
                                .also("CL-02", "CN-15", "CN-28", "CN-33", "DP-20", "ER-05", "ER-07", "ER-10", "IN-08",
                                      "IN-13", "IN-16", "IN-17", "MR-01", "MR-05", "MR-13", "PR-*", "TS-02", "TS-06",
                                      "XF-03", "XF-10", "XF-16", "XF-18", "XF-30", "XF-31", "XF-33", "XF-37")
                                .because("each message of more than 64 KiB has a wrong byte")) {
  when_receive_done(net, [](const PostedReceive& receive, int*) {
    if (receive.sizes[0] <= 65536) return;
    auto* const last = static_cast<unsigned char*>(receive.data[0]) + receive.sizes[0] - 1;
    *last = static_cast<unsigned char>(~*last);
  });
}

// isend keeps 23 bits of the length of a message.
MUTANT(length_of_23_bits, breaks("XF-01", "XF-03", "XF-16", "XF-30", "TS-02")) {
  before(net.isend, [](Send& send) { send.size &= 0x7fffff; });
}

// isend keeps the arguments of a deferred send, and uses them when it is called again before a request completes.
MUTANT(deferred_send_remembered, breaks("XF-04")) {
  struct Deferred {
    Send send;
    int completions = 0;
  };
  auto& deferred = kept<PointerMap<std::shared_ptr<Deferred>>>();
  // A sender with several buffers sends the same message from another buffer only after a request has completed.
  auto& completions = kept<std::atomic<int>>();
  net.isend = [&](Send send) {
    const auto first = deferred.find(send.comm).value_or(nullptr);
    const bool remembered = first && first->send.tag == send.tag && first->completions == completions;
    const auto used = remembered ? first : std::make_shared<Deferred>(Deferred{send, completions});
    Send posted = used->send;
    posted.request = send.request;
    const Result result = good.isend(posted);
    if (result == Result::kSuccess && *send.request == nullptr)
      deferred.put(send.comm, used);
    else
      deferred.erase(send.comm);
    return result;
  };
  after(net.test, [&](Test test, Result result) {
    if (*test.done == 1) ++completions;
    return result;
  });
  before(net.close_send, [&](void* comm) { deferred.erase(comm); });
}

// isend and test fail for a send whose receive is not posted yet.
MUTANT(send_fails_without_receive,
       breaks("XF-05").also("*").because("each rule may send before the receive is posted")) {
  auto& tests = kept<PointerMap<int>>();
  after(net.isend, [&](Send send, Result result) {
    if (result != Result::kSuccess) return result;
    if (*send.request == nullptr) return Result::kRemoteError;
    tests.put(*send.request, 0);
    return result;
  });
  after(net.test, [&](Test test, Result result) {
    if (result != Result::kSuccess || !tests.contains(test.request)) return result;
    if (*test.done == 1) {
      tests.erase(test.request);
      return result;
    }
    return tests.add(test.request, 1) > 32 ? Result::kRemoteError : result;
  });
}

// Sends every seventh message after the message that follows it.
MUTANT(messages_reordered, breaks("XF-06")
                               .also("CL-*", "CN-*", "ER-*", "FL-07", "MR-*", "PR-*", "TH-*", "TS-*", "XF-*")
                               .because("each rule with seven messages on a comm receives two in the wrong order")) {
  HeldRequests& held_requests = HeldRequests::install(net);
  auto& waiting = kept<PointerMap<HeldRequest*>>();
  auto& count = kept<std::atomic<int>>();
  net.isend = [&](Send send) {
    if (auto* const behind = waiting.find(send.comm).value_or(nullptr)) {
      const Result result = good.isend(send);
      if (result != Result::kSuccess || *send.request == nullptr) return result;
      waiting.erase(send.comm);
      return behind->forward();
    }
    if (count++ % 7 != 6) return good.isend(send);
    HeldRequest* const held = held_requests.hold(send, good.isend);
    held->tests_before = 100;  // posted after 100 tests if no other send follows
    waiting.put(send.comm, held);
    *send.request = held;
    return Result::kSuccess;
  };
}

// isend loses the message with which a sequence number of 10 bits wraps.
MUTANT(sequence_wraps_at_1024,
       breaks("XF-06", "XF-12", "XF-19", "XF-22", "MR-14", "TH-03").also("CL-08", "CN-24", "TH-02", "XF-36")) {
  HeldRequests& held_requests = HeldRequests::install(net);
  auto& sent = kept<PointerMap<int>>();
  on_success(net.isend, [&](Send send) { sent.add(send.comm, 1); });
  net.isend = [&, counted = net.isend](Send send) {
    if (sent.add(send.comm, 0) != 1024) return counted(send);
    sent.put(send.comm, 0);
    *send.request = held_requests.done();
    return Result::kSuccess;
  };
  before(net.close_send, [&](void* comm) { sent.erase(comm); });
}

// Message numbers have 10 bits: the message after the first 1024 of a comm counts as received before.
MUTANT(message_number_wraps_at_1024,
       breaks("XF-06").also("CN-24", "MR-14", "XF-19", "XF-22", "XF-36", "CL-08", "TH-02", "TH-03")) {
  auto& counts = kept<PointerMap<int>>();  // receives, by comm
  auto& wrapped = kept<PointerSet>();      // requests
  on_success(net.irecv, [&](Receive receive) {
    wrapped.erase(*receive.request);
    if (counts.add(receive.comm, 1) == 1025) wrapped.insert(*receive.request);
  });
  after(net.test, [&](Test test, Result result) {
    return result == Result::kSuccess && *test.done == 1 && wrapped.contains(test.request) ? Result::kInternalError
                                                                                           : result;
  });
  before(net.close_recv, [&](void* comm) { counts.erase(comm); });
}

// test reports the size of the receive buffer instead of the size of the message.
MUTANT(posted_size_reported, breaks("XF-09").also("XF-12", "XF-26", "XF-41")) {
  when_receive_done(net, [](const PostedReceive& receive, int* sizes) {
    if (sizes == nullptr) return;
    for (std::size_t i = 0; i < receive.sizes.size(); ++i) sizes[i] = static_cast<int>(receive.sizes[i]);
  });
}

// isend refuses messages of 0 bytes.
MUTANT(empty_messages_refused, breaks("XF-12", "CN-10", "XF-10").also("CN-05", "PR-*", "XF-13")) {
  refuse(net.isend, Result::kInvalidArgument, [](Send send) { return send.size == 0; });
}

// isend reports messages of 0 bytes as sent and drops them.
MUTANT(empty_messages_dropped, breaks("XF-12", "CN-10", "XF-10").also("CN-05", "PR-*", "XF-13")) {
  HeldRequests& held_requests = HeldRequests::install(net);
  net.isend = [&](Send send) {
    if (send.size != 0) return good.isend(send);
    *send.request = held_requests.done();
    return Result::kSuccess;
  };
}

// isend refuses an empty message without an address.
MUTANT(empty_message_needs_address, breaks("XF-13")) {
  refuse(net.isend, Result::kInvalidArgument, [](Send send) { return send.data == nullptr; });
}

// A tag has 16 bits.
MUTANT(tags_cut_to_16_bits, breaks("XF-28")) {
  before(net.isend, [](Send& send) { send.tag &= 0xffff; });
  change_receives(net, [](CopiedReceive& receive) {
    for (int& tag : receive.tags) tag &= 0xffff;
  });
}

// isend refuses tags of more than 16 bits.
MUTANT(large_tags_refused, breaks("XF-28")) {
  refuse(net.isend, Result::kInvalidArgument, [](Send send) { return send.tag > 0xffff; });
}

// isend refuses messages of 1 GiB.
MUTANT(gigabyte_refused, breaks("XF-32", "XF-42")) {
  refuse(net.isend, Result::kInvalidArgument, [](Send send) { return send.size >= std::size_t{1} << 30; });
}

// isend cuts the size to 31 bits.
MUTANT(send_size_cut_to_31_bits, breaks("XF-42")) {
  before(net.isend, [](Send& send) { send.size &= 0x7fffffff; });
}

// isend fails on a comm that was idle for 30 seconds.
MUTANT(idle_comm_fails, breaks("XF-34")) {
  using Clock = std::chrono::steady_clock;
  auto& last = kept<PointerMap<Clock::time_point>>();
  refuse(net.isend, Result::kRemoteError, [&](Send send) {
    const Clock::time_point now = Clock::now(), before = last.find(send.comm).value_or(now);
    last.put(send.comm, now);
    return now - before > std::chrono::seconds(30);
  });
  before(net.close_send, [&](void* comm) { last.erase(comm); });
}

// irecv returns an error instead of NULL when 32 receives are in flight, as many as NCCL_NET_MAX_REQUESTS.
VARIANT(more_than_32_receives_refused) {
  InFlight& in_flight = InFlight::watch(net);
  refuse(net.irecv, Result::kInternalError, [&](Receive receive) { return in_flight.receives(receive.comm) >= 32; });
}

// irecv returns an error when 60 buffers are in flight, and counts buffers where it should count receives.
MUTANT(buffers_counted_as_receives, breaks("XF-07")) {
  InFlight& in_flight = InFlight::watch(net);
  refuse(net.irecv, Result::kInternalError, [&](Receive receive) {
    constexpr std::size_t kMax = 60;
    return in_flight.buffers(receive.comm).size() + static_cast<std::size_t>(receive.n) > kMax;
  });
}

// If more than 16 receives are in flight, the completion of one is assigned to a slot without a request.
MUTANT(completion_on_unused_slot, breaks("XF-07")) {
  InFlight& in_flight = InFlight::watch(net);
  auto& lost = kept<PointerSet>();
  on_success(net.irecv, [&](Receive receive) {
    if (in_flight.receives(receive.comm) == 17) lost.insert(*receive.request);
  });
  delay(net.test, [&](Test test) { return lost.contains(test.request); });
}

// The done flag of a slot of 5000 bytes is not cleared when the next receive of the comm uses the slot.
MUTANT(stale_completion_flag, breaks("XF-05").also("XF-12", "XF-17", "XF-22")) {
  auto& comms = kept<PointerMap<void*>>();  // by request
  auto& used = kept<PointerSet>();          // comms whose slot holds a done flag
  auto& stale = kept<PointerSet>();         // requests
  on_success(net.irecv, [&](Receive receive) {
    void* const request = *receive.request;
    stale.erase(request);
    comms.erase(request);
    if (receive.n != 1 || receive.sizes[0] != 5000) return;
    comms.put(request, receive.comm);
    if (used.erase(receive.comm)) stale.insert(request);
  });
  after(net.test, [&](Test test, Result result) {
    if (result != Result::kSuccess) return result;
    if (stale.erase(test.request)) *test.done = 1;
    if (const auto comm = comms.find(test.request); comm && *test.done == 1) used.insert(*comm);
    return result;
  });
}

// irecv fails if more than 3 MiB are posted on its comm in several receives.
MUTANT(posted_bytes_run_out,
       breaks("PR-01").also("CL-11", "ER-04", "ER-09", "ER-10", "PR-*", "TS-09", "XF-01", "XF-03", "XF-16", "XF-31")) {
  constexpr std::size_t kMax = std::size_t{3} << 20;
  auto& comms = comms_of_requests(net.irecv);
  auto& sizes = kept<PointerMap<std::size_t>>();   // by request
  auto& posted = kept<PointerMap<std::size_t>>();  // by comm
  const auto bytes_of = [](Receive receive) {
    return std::accumulate(receive.sizes, receive.sizes + receive.n, std::size_t{0});
  };
  on_success(net.irecv, [&, bytes_of](Receive receive) {
    sizes.put(*receive.request, bytes_of(receive));
    posted.add(receive.comm, bytes_of(receive));
  });
  refuse(net.irecv, Result::kInternalError, [&, bytes_of](Receive receive) {
    const std::size_t before = posted.add(receive.comm, 0);
    return before > 0 && before + bytes_of(receive) > kMax;
  });
  on_end(net, [&](Test test) {
    if (const auto size = sizes.take(test.request)) posted.add(*comms.find(test.request), -*size);
  });
}

// One in 100000 messages arrives with a wrong byte. The fault is so rare that only plugfest fuzz finds it.
MUTANT(one_message_in_100000_corrupted, only_fuzz_finds()) {
  // Processes begin at different counts, so that it makes no difference how long each of them lives.
  static std::atomic<unsigned> received{static_cast<unsigned>(getpid()) * 2654435761u % 100'000};
  when_receive_done(net, [](const PostedReceive& receive, int* sizes) {
    for (std::size_t i = 0; i < receive.data.size(); ++i) {
      if (sizes == nullptr || sizes[i] == 0 || ++received % 100'000 != 0) continue;
      static_cast<unsigned char*>(receive.data[i])[sizes[i] / 2] ^= 0x10;
    }
  });
}

}  // namespace plugfest::mutants
