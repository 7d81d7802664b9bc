// Mutants of the MR rules.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// regMr refuses memory that is not page-aligned.
MUTANT(page_aligned_memory_only, breaks("MR-01").also("CL-*", "CN-*", "DP-20", "ER-*", "FL-06", "FL-07", "IN-*",
                                                      "LD-05", "MR-*", "PR-*", "TH-*", "TS-*", "XF-*")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if (reinterpret_cast<std::uintptr_t>(data) % 4096 != 0) return Result::kInvalidArgument;
    return good.reg_mr(comm, data, size, type, mhandle);
  };
}

// deregMr removes every registration that starts at the same address.
MUTANT(dereg_removes_equal_addresses, breaks("MR-04").also("MR-18")) {
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
// Most rules that send messages fail, since their messages are at several offsets of a registration.
MUTANT(send_address_ignored,
       breaks("MR-05").also("CL-*", "CN-*", "ER-*", "FL-*", "MR-*", "PR-*", "TH-*", "TS-*", "XF-*")) {
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
MUTANT(dereg_fails_during_receives, breaks("MR-11", "MR-12", "MR-14", "CL-03").also("CL-12", "PR-*")) {
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

// regMr of a range that was registered on the comm before finds the old registration: a send takes the pages that were
// there before.
MUTANT(registration_of_old_pages,
       breaks("MR-13").also("CN-17", "IN-17", "MR-07", "MR-10", "MR-14", "TH-03", "XF-12", "XF-36")) {
  struct Cached {
    std::vector<char> pages;  // as they were at deregMr
    void* mhandle = nullptr;  // of `pages`, once a send has needed it
  };
  struct Cache {
    std::mutex mutex;
    std::map<std::tuple<void*, void*, std::size_t>, std::shared_ptr<Cached>> ranges;
    std::map<void*, std::tuple<void*, void*, std::size_t>> registered;  // by mhandle
    std::map<void*, std::shared_ptr<Cached>> stale;                     // by mhandle
  };
  auto cache = std::make_shared<Cache>();
  net.reg_mr = [&good, cache](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    if (result != Result::kSuccess) return result;
    const std::lock_guard lock(cache->mutex);
    const auto range = std::make_tuple(comm, data, size);
    cache->registered[*mhandle] = range;
    cache->stale.erase(*mhandle);
    // New pages are zero. Memory that was registered again without a new mapping is not.
    const auto* const bytes = static_cast<const char*>(data);
    const auto old = cache->ranges.find(range);
    if (old != cache->ranges.end() && size >= 4096 && std::all_of(bytes, bytes + size, [](char c) { return c == 0; }))
      cache->stale[*mhandle] = old->second;
    return result;
  };
  net.dereg_mr = [&good, cache](void* comm, void* mhandle) {
    {
      const std::lock_guard lock(cache->mutex);
      const auto range = cache->registered[mhandle];
      const auto* const bytes = static_cast<const char*>(std::get<1>(range));
      const std::size_t size = std::get<2>(range);
      auto cached = std::make_shared<Cached>();
      cached->pages.assign(bytes, bytes + size);
      if (size >= 4096) cache->ranges[range] = cached;
    }
    return good.dereg_mr(comm, mhandle);
  };
  net.isend = [&good, cache](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const std::lock_guard lock(cache->mutex);
    const auto stale = cache->stale.find(mhandle);
    if (stale == cache->stale.end()) return good.isend(comm, data, size, tag, mhandle, request);
    Cached& old = *stale->second;
    if (old.mhandle == nullptr) {
      const Result result = good.reg_mr(comm, old.pages.data(), old.pages.size(), abi::kPointerHost, &old.mhandle);
      if (result != Result::kSuccess) return result;
    }
    const std::ptrdiff_t offset =
        static_cast<char*>(data) - static_cast<char*>(std::get<1>(cache->registered[mhandle]));
    return good.isend(comm, old.pages.data() + offset, size, tag, old.mhandle, request);
  };
  net.close_send = [&good, cache](void* comm) {
    {
      const std::lock_guard lock(cache->mutex);
      std::erase_if(cache->ranges, [comm](const auto& range) { return std::get<0>(range.first) == comm; });
    }
    return good.close_send(comm);
  };
}

// regMr fails while another thread has operations outstanding on the comm.
MUTANT(reg_fails_during_transfers, breaks("MR-14", "TH-03").also("CL-06", "CL-12", "MR-12", "PR-*")) {
  auto in_flight = InFlight::watch(net, good);
  net.reg_mr = [&good, in_flight](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if (in_flight->used_by_another_thread(comm)) return Result::kInternalError;
    return good.reg_mr(comm, data, size, type, mhandle);
  };
}

}  // namespace plugfest::mutants
