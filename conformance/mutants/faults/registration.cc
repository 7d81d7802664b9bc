// Mutants of the MR rules.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Live registrations of the process, and lost ones: isend fails with their handles.
struct Registrations {
  struct Entry {
    void* comm;
    std::uintptr_t address;
    std::size_t size;
  };
  std::mutex mutex;
  std::map<void*, Entry> live;  // by mhandle
  std::set<void*> lost;         // mhandles

  // `at_deregistration(registrations, mhandle)` is called with the mutex locked, while the registration is live.
  template <typename Action>
  static Registrations& watch(Net& net, Action at_deregistration) {
    auto& all = kept<Registrations>();
    on_success(net.reg_mr, [&](Register call) {
      const std::lock_guard lock(all.mutex);
      all.live[*call.mhandle] = {call.comm, reinterpret_cast<std::uintptr_t>(call.data), call.size};
      all.lost.erase(*call.mhandle);
    });
    before(net.dereg_mr, [&all, at_deregistration](Deregister call) {
      const std::lock_guard lock(all.mutex);
      at_deregistration(all, call.mhandle);
      all.live.erase(call.mhandle);
    });
    refuse(net.isend, Result::kInvalidArgument, [&](Send send) {
      const std::lock_guard lock(all.mutex);
      return all.lost.count(send.mhandle) != 0;
    });
    return all;
  }
};

}  // namespace

// regMr refuses memory that is not whole pages, which NCCL does not register.
MUTANT(page_aligned_memory_only, breaks("MR-01").also("MR-20")) {
  refuse(net.reg_mr, Result::kInvalidArgument, [](Register call) {
    return reinterpret_cast<std::uintptr_t>(call.data) % 4096 != 0 || call.size % 4096 != 0;
  });
}

// regMr writes no handle: registrations are found by address.
MUTANT(mhandle_unwritten, breaks("MR-03").also("FL-06", "MR-12", "TS-03")) {
  struct Range {
    std::uintptr_t start;
    std::size_t size;
    void* mhandle;
  };
  struct Table {
    std::mutex mutex;
    std::map<void*, std::vector<Range>> ranges;  // by comm, newest last

    void* find(void* comm, void* data, std::size_t size) {
      const std::lock_guard lock(mutex);
      const auto address = reinterpret_cast<std::uintptr_t>(data);
      const std::vector<Range>& all = ranges[comm];
      const auto range = std::find_if(all.rbegin(), all.rend(), [&](const Range& known) {
        return address >= known.start && address + size <= known.start + known.size;
      });
      return range == all.rend() ? nullptr : range->mhandle;
    }
  };
  auto& table = kept<Table>();
  net.reg_mr = [&](Register call) {
    void* mhandle = nullptr;
    const Result result = good.reg_mr({call.comm, call.data, call.size, call.type, &mhandle});
    const std::lock_guard lock(table.mutex);
    if (result == Result::kSuccess)
      table.ranges[call.comm].push_back({reinterpret_cast<std::uintptr_t>(call.data), call.size, mhandle});
    return result;
  };
  net.dereg_mr = [](Deregister) { return Result::kSuccess; };
  before(net.isend, [&](Send& send) { send.mhandle = table.find(send.comm, send.data, send.size); });
  net.irecv = [&](Receive receive) {
    std::vector<void*> mhandles;
    for (int i = 0; i < receive.n; ++i) mhandles.push_back(table.find(receive.comm, receive.data[i], receive.sizes[i]));
    receive.mhandles = mhandles.data();
    return good.irecv(receive);
  };
  const auto close = [&](void* comm) {
    const std::lock_guard lock(table.mutex);
    for (const Range& range : table.ranges[comm]) good.dereg_mr({comm, range.mhandle});
    table.ranges.erase(comm);
  };
  before(net.close_send, close);
  before(net.close_recv, close);
}

// deregMr removes every registration that starts at the same address.
MUTANT(dereg_removes_equal_addresses, breaks("MR-04").also("MR-18")) {
  auto& bases = kept<PointerMap<void*>>();  // by mhandle
  auto& removed = kept<PointerSet>();       // bases
  on_success(net.reg_mr, [&](Register call) {
    bases.put(*call.mhandle, call.data);
    removed.erase(call.data);
  });
  before(net.dereg_mr, [&](Deregister call) { removed.insert(bases.find(call.mhandle).value_or(nullptr)); });
  refuse(net.isend, Result::kInvalidArgument,
         [&](Send send) { return removed.contains(bases.find(send.mhandle).value_or(nullptr)); });
}

// isend sends from the start of the registration, regardless of its address argument. Most rules that send messages
// fail, since most buffers lie at an offset of their registration.
MUTANT(send_address_ignored,
       breaks("MR-05")
           .also("CL-*", "CN-*", "ER-*", "FL-*", "IN-*", "LD-05", "MR-*", "PR-*", "TH-*", "TS-*", "XF-*")
           .because("few messages begin at the start of their registration")) {
  auto& bases = kept<PointerMap<void*>>();
  on_success(net.reg_mr, [&](Register call) { bases.put(*call.mhandle, call.data); });
  before(net.isend, [&](Send& send) { send.data = bases.find(send.mhandle).value_or(send.data); });
}

// isend keeps 20 bits of the offset of a message in its registration.
MUTANT(offset_of_20_bits, breaks("MR-05", "XF-31", "TS-06", "ER-10").also("MR-06", "MR-07", "PR-*", "XF-09")) {
  auto& bases = kept<PointerMap<char*>>();
  on_success(net.reg_mr, [&](Register call) { bases.put(*call.mhandle, static_cast<char*>(call.data)); });
  before(net.isend, [&](Send& send) {
    if (const auto base = bases.find(send.mhandle))
      send.data = *base + ((static_cast<char*>(send.data) - *base) & 0xfffff);
  });
}

// regMr refuses memory of more than 100 MiB.
MUTANT(large_registrations_refused, breaks("MR-06", "MR-07", "XF-39")) {
  refuse(net.reg_mr, Result::kInternalError, [](Register call) { return call.size > 100 << 20; });
}

// regMr cuts the size to 32 bits.
MUTANT(registration_size_cut_to_32_bits, breaks("MR-07", "XF-39")) {
  before(net.reg_mr, [](Register& call) { call.size = static_cast<std::uint32_t>(call.size); });
}

// regMr asserts that the size is above 0.
MUTANT(empty_registration_aborts, breaks("MR-08")) {
  abort_if(net.reg_mr, [](Register call) { return call.size == 0; });
}

// regMr treats memory of every type as host memory.
MUTANT(pointer_type_ignored, breaks("MR-09")) {
  before(net.reg_mr, [](Register& call) { call.type = abi::kPointerHost; });
}

// isend and irecv fail on a comm whose regMr has failed.
MUTANT(failed_registration_breaks_comm, breaks("MR-10").also("MR-19")) {
  auto& failed = kept<PointerSet>();
  on_failure(net.reg_mr, [&](Register call) { failed.insert(call.comm); });
  const auto has_failed = [&](const auto& call) { return failed.contains(call.comm); };
  refuse(net.isend, Result::kInternalError, has_failed);
  refuse(net.irecv, Result::kInternalError, has_failed);
}

// deregMr fails while the comm has receives outstanding.
MUTANT(dereg_fails_during_receives, breaks("MR-11", "MR-12", "MR-14", "CL-03").also("CL-12", "PR-*", "CL-14")) {
  InFlight& in_flight = InFlight::watch(net);
  refuse(net.dereg_mr, Result::kInternalError, [&](Deregister call) { return in_flight.receives(call.comm) > 0; });
}

// closeRecv writes to the buffers of outstanding receives.
MUTANT(close_writes_buffers, breaks("MR-12", "CL-03")) {
  InFlight& in_flight = InFlight::watch(net);
  before(net.close_recv, [&](void* comm) {
    for (void* buffer : in_flight.buffers(comm)) *static_cast<volatile char*>(buffer) = 0;
  });
}

// regMr of a range that was registered on the comm before finds the old registration: a send transfers the old pages.
MUTANT(registration_of_old_pages, breaks("MR-13").also("CL-10", "CN-15", "CN-17", "IN-08", "IN-17", "MR-07", "MR-10",
                                                       "MR-14", "TH-03", "XF-01", "XF-12", "XF-16", "XF-36")) {
  struct Cached {
    std::vector<char> pages;  // content at deregMr
    void* mhandle = nullptr;  // registration of `pages`, made by the first send that needs it
  };
  struct Cache {
    std::mutex mutex;
    std::map<std::tuple<void*, void*, std::size_t>, std::shared_ptr<Cached>> ranges;
    std::map<void*, std::tuple<void*, void*, std::size_t>> registered;  // by mhandle
    std::map<void*, std::shared_ptr<Cached>> stale;                     // by mhandle
  };
  auto& cache = kept<Cache>();
  on_success(net.reg_mr, [&](Register call) {
    const std::lock_guard lock(cache.mutex);
    const auto range = std::make_tuple(call.comm, call.data, call.size);
    cache.registered[*call.mhandle] = range;
    cache.stale.erase(*call.mhandle);
    // New pages are zero. Memory that was registered again without a new mapping is not.
    const auto* const bytes = static_cast<const char*>(call.data);
    const auto old = cache.ranges.find(range);
    if (old != cache.ranges.end() && call.size >= 4096 &&
        std::all_of(bytes, bytes + call.size, [](char c) { return c == 0; }))
      cache.stale[*call.mhandle] = old->second;
  });
  before(net.dereg_mr, [&](Deregister call) {
    const std::lock_guard lock(cache.mutex);
    const auto range = cache.registered[call.mhandle];
    const auto* const bytes = static_cast<const char*>(std::get<1>(range));
    const std::size_t size = std::get<2>(range);
    auto cached = std::make_shared<Cached>();
    cached->pages.assign(bytes, bytes + size);
    if (size >= 4096) cache.ranges[range] = cached;
  });
  net.isend = [&](Send send) {
    const std::lock_guard lock(cache.mutex);
    const auto stale = cache.stale.find(send.mhandle);
    if (stale == cache.stale.end()) return good.isend(send);
    Cached& old = *stale->second;
    if (old.mhandle == nullptr) {
      const Result result =
          good.reg_mr({send.comm, old.pages.data(), old.pages.size(), abi::kPointerHost, &old.mhandle});
      if (result != Result::kSuccess) return result;
    }
    const std::ptrdiff_t offset =
        static_cast<char*>(send.data) - static_cast<char*>(std::get<1>(cache.registered[send.mhandle]));
    send.data = old.pages.data() + offset;
    send.mhandle = old.mhandle;
    return good.isend(send);
  };
  before(net.close_send, [&](void* comm) {
    const std::lock_guard lock(cache.mutex);
    std::erase_if(cache.ranges, [comm](const auto& range) { return std::get<0>(range.first) == comm; });
  });
}

// regMr fails while another thread has operations outstanding on the comm.
MUTANT(reg_fails_during_transfers, breaks("MR-14", "TH-03").also("CL-06", "CL-12", "CL-14", "MR-12", "PR-*")) {
  InFlight& in_flight = InFlight::watch(net);
  refuse(net.reg_mr, Result::kInternalError,
         [&](Register call) { return in_flight.used_by_another_thread(call.comm); });
}

// A comm supports 60 registrations.
MUTANT(registrations_run_out, breaks("MR-15")) { limit_registrations(net, 60); }

// deregMr compacts a large table of registrations and moves one entry too few.
MUTANT(registration_lost_in_large_table, breaks("MR-15")) {
  auto& handles = kept<std::vector<void*>>();
  Registrations& all = Registrations::watch(net, [&handles](Registrations& registrations, void* mhandle) {
    const auto entry = std::find(handles.begin(), handles.end(), mhandle);
    if (entry == handles.end()) return;
    const auto next = handles.erase(entry);
    if (next != handles.end() && handles.size() > 4000) registrations.lost.insert(*next);
  });
  on_success(net.reg_mr, [&](Register call) {
    const std::lock_guard lock(all.mutex);
    handles.push_back(*call.mhandle);
  });
}

// deregMr reads the registration without a NULL check.
MUTANT(null_mhandle_dereferenced, breaks("MR-16")) {
  before(net.dereg_mr,
         [](Deregister call) { [[maybe_unused]] const char first = *static_cast<volatile char*>(call.mhandle); });
}

// closeSend removes the registrations of all memory that was ever registered on the comm, even those on other comms.
MUTANT(close_removes_registrations_of_others, breaks("MR-18")) {
  Registrations& all = Registrations::watch(net, [](Registrations&, void*) {});
  auto& known = kept<std::map<void*, std::set<std::uintptr_t>>>();  // addresses by comm
  before(net.reg_mr, [&](Register call) {
    const std::lock_guard lock(all.mutex);
    known[call.comm].insert(reinterpret_cast<std::uintptr_t>(call.data));
  });
  before(net.close_send, [&](void* comm) {
    const std::lock_guard lock(all.mutex);
    for (const auto& [mhandle, entry] : all.live) {
      if (known[comm].count(entry.address) != 0) all.lost.insert(mhandle);
    }
    known.erase(comm);
  });
}

// regMr writes to mapped memory to make it present.
MUTANT(read_only_memory_written, breaks("MR-19")) {
  before(net.reg_mr, [](Register call) {
    char byte = 0;
    const iovec here{&byte, 1}, there{call.data, 1};
    if (call.size != 0 && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1)
      __atomic_fetch_or(static_cast<char*>(call.data), 0, __ATOMIC_RELAXED);
  });
}

// Small buffers of one page share a registration, which the first deregMr removes.
MUTANT(page_shares_registration, breaks("MR-20").also("MR-15", "MR-04")) {
  Registrations::watch(net, [](Registrations& all, void* mhandle) {
    constexpr std::size_t kPage = 4096;
    const auto removed = all.live.find(mhandle);
    if (removed == all.live.end() || removed->second.size >= kPage) return;
    for (const auto& [other, entry] : all.live)
      if (other != mhandle && entry.comm == removed->second.comm && entry.size < kPage &&
          entry.address / kPage == removed->second.address / kPage)
        all.lost.insert(other);
  });
}

// isend uses the descriptor with which its memory was registered.
MUTANT(dma_buf_descriptor_kept, breaks("MR-17")) {
  static auto& sizes = kept<std::map<void*, std::pair<int, off_t>>>();  // of the descriptors' files, by mhandle
  static auto& reg_mr = net.reg_mr;
  static const auto size_of = [](int descriptor) { return lseek(descriptor, 0, SEEK_END); };
  change_properties(net, [](Properties& properties) { properties.ptrSupport |= abi::kPointerDmaBuf; });
  net.table->regMrDmaBuf = [](void* comm, void* data, std::size_t size, int, std::uint64_t, int fd, void** mhandle) {
    const Result result = reg_mr({comm, data, size, abi::kPointerHost, mhandle});
    if (result == Result::kSuccess) sizes[*mhandle] = {fd, size_of(fd)};
    return result;
  };
  refuse(net.isend, Result::kSystemError, [](Send send) {
    const auto found = sizes.find(send.mhandle);
    return found != sizes.end() && size_of(found->second.first) != found->second.second;
  });
}

}  // namespace plugfest::mutants
