// Mutants of the XF rules about arguments at the edge of what NCCL passes.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// isend keeps the arguments of a deferred send, and uses them when it is called again before a request completes.
MUTANT(deferred_send_remembered, breaks("XF-04")) {
  struct Arguments {
    void* data = nullptr;
    std::size_t size = 0;
    int tag = 0;
    void* mhandle = nullptr;
    int completions = 0;
  };
  auto deferred = std::make_shared<PointerMap<Arguments>>();
  // A sender with several buffers takes another one for the same message only after a request has completed.
  auto completions = std::make_shared<std::atomic<int>>(0);
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const auto first = deferred->find(comm);
    const bool remembered = first && first->tag == tag && first->completions == *completions;
    const Arguments used = remembered ? *first : Arguments{data, size, tag, mhandle, *completions};
    const Result result = good.isend(comm, used.data, used.size, used.tag, used.mhandle, request);
    if (result == Result::kSuccess && *request == nullptr) {
      deferred->put(comm, used);
    } else {
      deferred->erase(comm);
    }
    return result;
  };
  net.test = [&good, completions](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (*done == 1) ++*completions;
    return result;
  };
  net.close_send = [&good, deferred](void* comm) {
    deferred->erase(comm);
    return good.close_send(comm);
  };
}

// irecv returns an error instead of NULL when 32 receives are in flight.
MUTANT(error_instead_of_not_now, breaks("XF-08").also("XF-07")) {
  auto in_flight = InFlight::watch(net, good);
  net.irecv = [in_flight, irecv = net.irecv](void* comm, auto... arguments) {
    return in_flight->receives(comm) >= 32 ? Result::kInternalError : irecv(comm, arguments...);
  };
}

// irecv returns an error when 60 buffers are in flight, and counts buffers where it should count receives.
MUTANT(buffers_counted_as_receives, breaks("XF-07")) {
  auto in_flight = InFlight::watch(net, good);
  net.irecv = [in_flight, irecv = net.irecv](void* comm, int n, auto... arguments) {
    constexpr std::size_t kMost = 60;
    if (in_flight->buffers(comm).size() + static_cast<std::size_t>(n) > kMost) return Result::kInternalError;
    return irecv(comm, n, arguments...);
  };
}

// isend refuses an empty message without an address.
MUTANT(empty_message_needs_address, breaks("XF-13")) {
  net.isend = [&good](void* comm, void* data, auto... arguments) {
    return data == nullptr ? Result::kInvalidArgument : good.isend(comm, data, arguments...);
  };
}

// irecv clears the sizes that it was called with.
MUTANT(receive_sizes_cleared, breaks("XF-15")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    std::fill(sizes, sizes + n, 0);
    return result;
  };
}

// irecv of 0 buffers fails an assertion.
MUTANT(group_of_none_aborts, breaks("XF-27")) {
  net.irecv = [&good](void* comm, int n, auto... arguments) {
    if (n == 0) std::abort();
    return good.irecv(comm, n, arguments...);
  };
}

// irecv ignores the buffers beyond maxRecvs.
MUTANT(large_group_cut, breaks("XF-27")) {
  net.irecv = [&good](void* comm, int n, auto... arguments) {
    constexpr int kMost = 8;  // the base plugin's maxRecvs
    return good.irecv(comm, std::min(n, kMost), arguments...);
  };
}

// A tag has 16 bits.
MUTANT(tags_cut_to_16_bits, breaks("XF-28")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return good.isend(comm, data, size, tag & 0xffff, mhandle, request);
  };
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<int> cut(tags, tags + n);
    for (int& tag : cut) tag &= 0xffff;
    return good.irecv(comm, n, data, sizes, cut.data(), mhandles, request);
  };
}

// isend refuses tags of more than 16 bits.
MUTANT(large_tags_refused, breaks("XF-28")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (tag > 0xffff) return Result::kInvalidArgument;
    return good.isend(comm, data, size, tag, mhandle, request);
  };
}

// irecv cuts sizes to 32 bits.
MUTANT(receive_size_cut_to_32_bits, breaks("XF-39")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<std::size_t> cut(sizes, sizes + n);
    for (std::size_t& size : cut) size = static_cast<std::uint32_t>(size);
    return good.irecv(comm, n, data, cut.data(), tags, mhandles, request);
  };
}

}  // namespace plugfest::mutants
