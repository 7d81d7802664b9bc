// Mutants of the MR rules about sizes, numbers and invalid arguments of registrations.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

using RegMr = std::function<Result(void* comm, void* data, std::size_t size, int type, void** mhandle)>;

/// isend fails with a handle for which `is_lost` is true.
template <typename IsLost>
void refuse_lost_handles(Net& net, const Net& good, IsLost is_lost) {
  net.isend = [&good, is_lost](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (is_lost(mhandle)) return Result::kInvalidArgument;
    return good.isend(comm, data, size, tag, mhandle, request);
  };
}

}  // namespace

// Finds registrations by address, and writes no handle.
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
      for (auto range = all.rbegin(); range != all.rend(); ++range) {
        if (address >= range->start && address + size <= range->start + range->size) return range->mhandle;
      }
      return nullptr;
    }
    void close(const Net& good, void* comm) {
      const std::lock_guard lock(mutex);
      for (const Range& range : ranges[comm]) good.dereg_mr(comm, range.mhandle);
      ranges.erase(comm);
    }
  };
  auto table = std::make_shared<Table>();
  net.reg_mr = [&good, table](void* comm, void* data, std::size_t size, int type, void**) {
    void* mhandle = nullptr;
    const Result result = good.reg_mr(comm, data, size, type, &mhandle);
    const std::lock_guard lock(table->mutex);
    if (result == Result::kSuccess) {
      table->ranges[comm].push_back({reinterpret_cast<std::uintptr_t>(data), size, mhandle});
    }
    return result;
  };
  net.dereg_mr = [](void*, void*) { return Result::kSuccess; };
  net.isend = [&good, table](void* comm, void* data, std::size_t size, int tag, void*, void** request) {
    return good.isend(comm, data, size, tag, table->find(comm, data, size), request);
  };
  net.irecv = [&good, table](void* comm, int n, void** data, std::size_t* sizes, int* tags, void**, void** request) {
    std::vector<void*> mhandles;
    for (int i = 0; i < n; ++i) mhandles.push_back(table->find(comm, data[i], sizes[i]));
    return good.irecv(comm, n, data, sizes, tags, mhandles.data(), request);
  };
  net.close_send = [&good, table](void* comm) {
    table->close(good, comm);
    return good.close_send(comm);
  };
  net.close_recv = [&good, table](void* comm) {
    table->close(good, comm);
    return good.close_recv(comm);
  };
}

// regMr refuses memory of more than 100 MiB.
MUTANT(large_registrations_refused, breaks("MR-06", "MR-07", "XF-39")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if (size > 100 << 20) return Result::kInternalError;
    return good.reg_mr(comm, data, size, type, mhandle);
  };
}

// regMr cuts the size to 32 bits.
MUTANT(registration_size_cut_to_32_bits, breaks("MR-07", "XF-39")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    return good.reg_mr(comm, data, static_cast<std::uint32_t>(size), type, mhandle);
  };
}

// regMr requires a size above 0 by an assertion.
MUTANT(empty_registration_aborts, breaks("MR-08")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if (size == 0) std::abort();
    return good.reg_mr(comm, data, size, type, mhandle);
  };
}

// regMr takes memory of every type for host memory.
MUTANT(pointer_type_ignored, breaks("MR-09")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int, void** mhandle) {
    return good.reg_mr(comm, data, size, abi::kPointerHost, mhandle);
  };
}

// isend and irecv fail on a comm whose regMr has failed.
MUTANT(failed_registration_breaks_comm, breaks("MR-10")) {
  auto failed = std::make_shared<PointerMap<bool>>();
  net.reg_mr = [&good, failed](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    if (result != Result::kSuccess) failed->put(comm, true);
    return result;
  };
  net.isend = [&good, failed](void* comm, auto... arguments) {
    return failed->find(comm) ? Result::kInternalError : good.isend(comm, arguments...);
  };
  net.irecv = [&good, failed](void* comm, auto... arguments) {
    return failed->find(comm) ? Result::kInternalError : good.irecv(comm, arguments...);
  };
}

// A comm has place for 1024 registrations.
MUTANT(registrations_run_out, breaks("MR-15")) {
  auto counts = std::make_shared<PointerMap<int>>();
  net.reg_mr = [&good, counts](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if (counts->change(comm, [](int& count) { return ++count; }) > 1024) return Result::kSystemError;
    return good.reg_mr(comm, data, size, type, mhandle);
  };
  net.dereg_mr = [&good, counts](void* comm, void* mhandle) {
    counts->change(comm, [](int& count) { return --count; });
    return good.dereg_mr(comm, mhandle);
  };
}

// deregMr closes the gap in a large table of registrations and moves one entry too few.
MUTANT(registration_lost_in_large_table, breaks("MR-15")) {
  struct Table {
    std::mutex mutex;
    std::vector<void*> handles;
    std::set<void*> lost;
  };
  auto table = std::make_shared<Table>();
  net.reg_mr = [&good, table](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    if (result != Result::kSuccess) return result;
    const std::lock_guard lock(table->mutex);
    table->handles.push_back(*mhandle);
    table->lost.erase(*mhandle);
    return result;
  };
  net.dereg_mr = [&good, table](void* comm, void* mhandle) {
    const std::lock_guard lock(table->mutex);
    const auto entry = std::find(table->handles.begin(), table->handles.end(), mhandle);
    if (entry != table->handles.end()) {
      const auto next = table->handles.erase(entry);
      if (next != table->handles.end() && table->handles.size() > 1000) table->lost.insert(*next);
    }
    return good.dereg_mr(comm, mhandle);
  };
  refuse_lost_handles(net, good, [table](void* mhandle) {
    const std::lock_guard lock(table->mutex);
    return table->lost.count(mhandle) != 0;
  });
}

// deregMr reads the registration without a NULL check.
MUTANT(null_mhandle_dereferenced, breaks("MR-16")) {
  net.dereg_mr = [&good](void* comm, void* mhandle) {
    [[maybe_unused]] const char first = *static_cast<volatile char*>(mhandle);
    return good.dereg_mr(comm, mhandle);
  };
}

namespace {

/// Live registrations of the process.
struct Registrations {
  struct Entry {
    void* comm;
    std::uintptr_t address;
    std::size_t size;
  };
  std::mutex mutex;
  std::map<void*, Entry> live;  // by mhandle
  std::set<void*> lost;         // mhandles

  static RegMr recorder(const Net& good, const std::shared_ptr<Registrations>& all) {
    return [&good, all](void* comm, void* data, std::size_t size, int type, void** mhandle) {
      const Result result = good.reg_mr(comm, data, size, type, mhandle);
      if (result != Result::kSuccess) return result;
      const std::lock_guard lock(all->mutex);
      all->live[*mhandle] = {comm, reinterpret_cast<std::uintptr_t>(data), size};
      all->lost.erase(*mhandle);
      return result;
    };
  }
  bool is_lost(void* mhandle) {
    const std::lock_guard lock(mutex);
    return lost.count(mhandle) != 0;
  }
};

}  // namespace

// regMr writes to mapped memory to make it present.
MUTANT(read_only_memory_written, breaks("MR-19")) {
  net.reg_mr = [&good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    char byte = 0;
    const iovec here{&byte, 1}, there{data, 1};
    if (size != 0 && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1) {
      __atomic_fetch_or(static_cast<char*>(data), 0, __ATOMIC_RELAXED);
    }
    return good.reg_mr(comm, data, size, type, mhandle);
  };
}

// closeSend removes the registrations of all memory that was ever registered on the comm, also on other comms.
MUTANT(close_removes_registrations_of_others, breaks("MR-18")) {
  struct State : Registrations {
    std::map<void*, std::set<std::uintptr_t>> known;  // addresses by comm
  };
  auto state = std::make_shared<State>();
  net.reg_mr = [state, record = Registrations::recorder(good, state)](void* comm, void* data, std::size_t size,
                                                                      int type, void** mhandle) {
    {
      const std::lock_guard lock(state->mutex);
      state->known[comm].insert(reinterpret_cast<std::uintptr_t>(data));
    }
    return record(comm, data, size, type, mhandle);
  };
  net.dereg_mr = [&good, state](void* comm, void* mhandle) {
    {
      const std::lock_guard lock(state->mutex);
      state->live.erase(mhandle);
    }
    return good.dereg_mr(comm, mhandle);
  };
  net.close_send = [&good, state](void* comm) {
    {
      const std::lock_guard lock(state->mutex);
      for (const auto& [mhandle, entry] : state->live) {
        if (state->known[comm].count(entry.address) != 0) state->lost.insert(mhandle);
      }
      state->known.erase(comm);
    }
    return good.close_send(comm);
  };
  refuse_lost_handles(net, good, [state](void* mhandle) { return state->is_lost(mhandle); });
}

// Small buffers of one page share a registration, which the first deregMr removes.
MUTANT(page_shares_registration, breaks("MR-20").also("MR-15", "MR-04")) {
  auto all = std::make_shared<Registrations>();
  net.reg_mr = Registrations::recorder(good, all);
  net.dereg_mr = [&good, all](void* comm, void* mhandle) {
    {
      constexpr std::size_t kPage = 4096;
      const std::lock_guard lock(all->mutex);
      const auto removed = all->live.find(mhandle);
      if (removed != all->live.end() && removed->second.size < kPage) {
        for (const auto& [other, entry] : all->live) {
          if (other != mhandle && entry.comm == comm && entry.size < kPage &&
              entry.address / kPage == removed->second.address / kPage) {
            all->lost.insert(other);
          }
        }
      }
      all->live.erase(mhandle);
    }
    return good.dereg_mr(comm, mhandle);
  };
  refuse_lost_handles(net, good, [all](void* mhandle) { return all->is_lost(mhandle); });
}

}  // namespace plugfest::mutants
