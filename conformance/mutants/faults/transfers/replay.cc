// Mutants that only traffic on several comms or with several senders shows.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <vector>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// The process can have receives in flight on 3 comms.
MUTANT(receives_on_few_comms, breaks("PR-03", "PR-04", "PR-05", "PR-06").also("CN-19", "XF-33", "XF-43", "TH-02")) {
  constexpr std::size_t kMost = 3;
  struct InFlight {
    std::mutex mutex;
    std::map<const void*, const void*> comms;  // by request
    std::size_t comms_besides(const void* comm) {
      std::set<const void*> others;
      for (const auto& [request, of] : comms) {
        if (of != comm) others.insert(of);
      }
      return others.size();
    }
  };
  auto in_flight = std::make_shared<InFlight>();
  net.irecv = [&good, in_flight](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                 void** request) {
    const std::lock_guard lock(in_flight->mutex);
    if (in_flight->comms_besides(comm) >= kMost) return Result::kInternalError;
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) in_flight->comms[*request] = comm;
    return result;
  };
  net.test = [&good, in_flight](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    const std::lock_guard lock(in_flight->mutex);
    if (result != Result::kSuccess || *done == 1) in_flight->comms.erase(request);
    return result;
  };
  net.close_recv = [&good, in_flight](void* comm) {
    const std::lock_guard lock(in_flight->mutex);
    std::erase_if(in_flight->comms, [comm](const auto& entry) { return entry.second == comm; });
    return good.close_recv(comm);
  };
}

// irecv fails if more than 3 MiB are posted on its comm in several receives.
MUTANT(posted_bytes_run_out,
       breaks("PR-01").also("CL-11", "ER-04", "ER-09", "ER-10", "PR-*", "TS-09", "XF-01", "XF-03", "XF-31")) {
  constexpr std::size_t kMost = std::size_t{3} << 20;
  struct Receive {
    const void* comm;
    std::size_t bytes;
  };
  auto receives = std::make_shared<PointerMap<Receive>>();
  auto posted = std::make_shared<PointerMap<std::size_t>>();
  net.irecv = [&good, receives, posted](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                        void** request) {
    const std::size_t bytes = std::accumulate(sizes, sizes + n, std::size_t{0});
    const std::size_t before = posted->change(comm, [](std::size_t& value) { return value; });
    if (before > 0 && before + bytes > kMost) return Result::kInternalError;
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result != Result::kSuccess || *request == nullptr) return result;
    receives->put(*request, {comm, bytes});
    posted->change(comm, [&](std::size_t& value) { return value += bytes; });
    return result;
  };
  net.test = [&good, receives, posted](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    const auto receive = receives->find(request);
    if (!receive || (result == Result::kSuccess && *done == 0)) return result;
    receives->erase(request);
    posted->change(receive->comm, [&](std::size_t& value) { return value -= receive->bytes; });
    return result;
  };
}

// All comms of the process share 8 receives whose completion is optional.
MUTANT(optional_completions_shared_by_comms, breaks("PR-02").also("PR-*")) {
  constexpr int kMost = 8;
  auto count = std::make_shared<std::atomic<int>>(0);
  auto receives = std::make_shared<PointerMap<bool>>();
  net.irecv = [&good, count, receives](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                       void** request) {
    const bool optional = n == 1 && *request == reinterpret_cast<void*>(1);
    if (optional && count->load() >= kMost) return Result::kInternalError;
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (optional && result == Result::kSuccess && *request != nullptr) {
      receives->put(*request, true);
      ++*count;
    }
    return result;
  };
  net.test = [&good, count, receives](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if ((result != Result::kSuccess || *done == 1) && receives->find(request)) {
      receives->erase(request);
      --*count;
    }
    return result;
  };
}

// A group with fewer buffers than the one before it on the comm gets the first tags of that one.
MUTANT(shrunk_group_keeps_first_tags, breaks("PR-05").also("PR-04", "PR-06")) {
  auto last = std::make_shared<PointerMap<std::vector<int>>>();
  net.irecv = [&good, last](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                            void** request) {
    std::vector<int> used(tags, tags + n);
    const std::vector<int> before = last->find(comm).value_or(std::vector<int>{});
    const bool part = std::all_of(used.begin(), used.end(), [&](int tag) {
      return std::find(before.begin(), before.end(), tag) != before.end();
    });
    if (part && used.size() > 1 && used.size() < before.size()) std::copy_n(before.begin(), used.size(), used.begin());
    const Result result = good.irecv(comm, n, data, sizes, used.data(), mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) last->put(comm, std::vector<int>(tags, tags + n));
    return result;
  };
}

}  // namespace plugfest::mutants
