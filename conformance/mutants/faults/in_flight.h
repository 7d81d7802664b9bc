// The operations in flight on each comm, for mutations that depend on load.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

/// Records isend, irecv and test. Thread safety: any thread.
class InFlight {
 public:
  /// Replaces isend, irecv and test of `net` by functions that call `good` and record the operation.
  static std::shared_ptr<InFlight> watch(Net& net, const Net& good) {
    auto in_flight = std::make_shared<InFlight>();
    net.isend = [&good, in_flight](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
      const Result result = good.isend(comm, data, size, tag, mhandle, request);
      if (result == Result::kSuccess && *request != nullptr) in_flight->begin(*request, {comm, false, {data}, {}});
      return result;
    };
    net.irecv = [&good, in_flight](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                   void** request) {
      const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
      if (result == Result::kSuccess && *request != nullptr) {
        in_flight->begin(*request, {comm, true, std::vector<void*>(data, data + n), {}});
      }
      return result;
    };
    net.test = [&good, in_flight](void* request, int* done, int* sizes) {
      const Result result = good.test(request, done, sizes);
      if (result != Result::kSuccess || *done == 1) in_flight->end(request);
      return result;
    };
    return in_flight;
  }

  /// Drops the operations of a comm that is closed.
  void forget(const void* comm) {
    const std::lock_guard lock(mutex_);
    std::erase_if(operations_, [&](const auto& entry) { return entry.second.comm == comm; });
  }

  /// Number of receives in flight on a comm (null: on all).
  int receives(const void* comm = nullptr) const {
    const std::lock_guard lock(mutex_);
    int count = 0;
    for (const auto& [request, operation] : operations_) {
      count += operation.receives && (comm == nullptr || operation.comm == comm) ? 1 : 0;
    }
    return count;
  }
  /// Buffers of the receives in flight on a comm.
  std::vector<void*> buffers(const void* comm) const {
    const std::lock_guard lock(mutex_);
    std::vector<void*> all;
    for (const auto& [request, operation] : operations_) {
      if (operation.comm == comm && operation.receives) {
        all.insert(all.end(), operation.buffers.begin(), operation.buffers.end());
      }
    }
    return all;
  }
  /// Whether a thread other than the caller's has operations in flight on the comm (null: on any).
  bool used_by_another_thread(const void* comm) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [request, operation] : operations_) {
      if ((comm == nullptr || operation.comm == comm) && operation.thread != std::this_thread::get_id()) return true;
    }
    return false;
  }

 private:
  struct Operation {
    const void* comm;
    bool receives;
    std::vector<void*> buffers;
    std::thread::id thread;
  };

  void begin(const void* request, Operation operation) {
    const std::lock_guard lock(mutex_);
    operation.thread = std::this_thread::get_id();
    operations_.insert_or_assign(request, std::move(operation));
  }
  void end(const void* request) {
    const std::lock_guard lock(mutex_);
    operations_.erase(request);
  }
  mutable std::mutex mutex_;
  std::map<const void*, Operation> operations_;
};

}  // namespace plugfest::mutants
