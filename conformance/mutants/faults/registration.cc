// Mutants of the MR rules.
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <tuple>

#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// regMr refuses memory that is not page-aligned.
MUTANT(page_aligned_memory_only, breaks("MR-01")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if (reinterpret_cast<std::uintptr_t>(data) % 4096 != 0) return Result::kInvalidArgument;
    return good.reg_mr(comm, data, size, type, mhandle);
  };
}

// deregMr removes every registration that starts at the same address.
MUTANT(dereg_removes_equal_addresses, breaks("MR-04")) {
  struct Registered {
    std::mutex mutex;
    std::map<void*, void*> bases;  // by mhandle
    std::set<void*> removed;       // bases
  };
  auto registered = std::make_shared<Registered>();
  net.reg_mr = [&good, registered](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    if (result != Result::kSuccess) return result;
    const std::lock_guard lock(registered->mutex);
    registered->bases[*mhandle] = data;
    registered->removed.erase(data);
    return result;
  };
  net.dereg_mr = [&good, registered](void* comm, void* mhandle) {
    {
      const std::lock_guard lock(registered->mutex);
      registered->removed.insert(registered->bases[mhandle]);
    }
    return good.dereg_mr(comm, mhandle);
  };
  net.isend = [&good, registered](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    {
      const std::lock_guard lock(registered->mutex);
      if (registered->removed.count(registered->bases[mhandle]) != 0) return Result::kInvalidArgument;
    }
    return good.isend(comm, data, size, tag, mhandle, request);
  };
}

// isend sends from the start of the registration, whatever its address argument.
MUTANT(send_address_ignored, breaks("MR-05")) {
  auto bases = std::make_shared<PointerMap<void*>>();
  net.reg_mr = [&good, bases](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    if (result == Result::kSuccess) bases->put(*mhandle, data);
    return result;
  };
  net.isend = [&good, bases](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return good.isend(comm, bases->find(mhandle).value_or(data), size, tag, mhandle, request);
  };
}

// deregMr fails while the comm has receives outstanding.
MUTANT(dereg_fails_during_receives, breaks("MR-11")) {
  auto in_flight = InFlight::watch(net, good);
  net.dereg_mr = [&good, in_flight](void* comm, void* mhandle) {
    if (in_flight->receives(comm) > 0) return Result::kInternalError;
    return good.dereg_mr(comm, mhandle);
  };
}

// closeRecv writes to the buffers of outstanding receives.
MUTANT(close_writes_buffers, breaks("MR-12", "CL-03")) {
  auto in_flight = InFlight::watch(net, good);
  net.close_recv = [&good, in_flight](void* comm) {
    for (void* buffer : in_flight->buffers(comm)) *static_cast<volatile char*>(buffer) = 0;
    return good.close_recv(comm);
  };
}

// regMr refuses a range that was registered on the comm before.
MUTANT(address_registers_once, breaks("MR-13")) {
  struct Known {
    std::mutex mutex;
    std::set<std::tuple<void*, void*, std::size_t>> ranges;
  };
  auto known = std::make_shared<Known>();
  net.reg_mr = [&good, known](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    {
      const std::lock_guard lock(known->mutex);
      if (!known->ranges.emplace(comm, data, size).second) return Result::kInvalidArgument;
    }
    return good.reg_mr(comm, data, size, type, mhandle);
  };
}

// regMr fails while another thread has operations outstanding on the comm.
MUTANT(reg_fails_during_transfers, breaks("MR-14", "TH-03")) {
  auto in_flight = InFlight::watch(net, good);
  net.reg_mr = [&good, in_flight](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if (in_flight->used_by_another_thread(comm)) return Result::kInternalError;
    return good.reg_mr(comm, data, size, type, mhandle);
  };
}

}  // namespace plugfest::mutants
