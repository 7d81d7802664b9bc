// Mutants of the rules of thorough runs.
#include <chrono>
#include <memory>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// isend refuses messages of 1 GiB.
MUTANT(gigabyte_refused, breaks("XF-32", "XF-42")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (size >= std::size_t{1} << 30) return Result::kInvalidArgument;
    return good.isend(comm, data, size, tag, mhandle, request);
  };
}

// isend cuts the size to 31 bits.
MUTANT(send_size_cut_to_31_bits, breaks("XF-42")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return good.isend(comm, data, size & 0x7fffffff, tag, mhandle, request);
  };
}

// isend fails on a comm that was idle for 50 seconds.
MUTANT(idle_comm_fails, breaks("XF-34")) {
  using Clock = std::chrono::steady_clock;
  auto last = std::make_shared<PointerMap<Clock::time_point>>();
  net.isend = [&good, last](void* comm, auto... arguments) {
    const Clock::time_point now = Clock::now();
    const auto before = last->find(comm);
    last->put(comm, now);
    return before && now - *before > std::chrono::seconds(50) ? Result::kRemoteError : good.isend(comm, arguments...);
  };
  net.close_send = [&good, last](void* comm) {
    last->erase(comm);
    return good.close_send(comm);
  };
}

}  // namespace plugfest::mutants
