// Which operations a comm has out, for mutations that break under load.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "conformance/mutants/seam.h"

namespace plugfest::mutants {

/// Follows isend, irecv and test. All members may be called from several threads at once.
class InFlight {
 public:
  /// Puts itself in front of `good` in isend, irecv and test of `net`.
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

  /// Receives of a comm (null: of all) that are out.
  int receives(const void* comm = nullptr) const {
    const std::lock_guard lock(mutex_);
    int out = 0;
    for (const auto& [request, operation] : operations_) {
      out += operation.receives && (comm == nullptr || operation.comm == comm) ? 1 : 0;
    }
    return out;
  }
  /// Buffers of a comm's receives that are out.
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
  /// Whether a thread other than the caller has operations out on the comm (null: on any).
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
