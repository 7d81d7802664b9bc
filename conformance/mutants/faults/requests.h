// Operations in flight, and operations that a mutation accepts and passes to the base plugin later, or never.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/mutants/faults/state.h"

namespace plugfest::mutants {

/// A held operation. The caller gets its address as the request.
struct HeldRequest {
  /// Posts the operation to the base plugin; empty: the operation counts as done with 0 bytes.
  std::function<Result(void** request)> post;
  /// Tests that report "not done" before the operation is posted.
  int tests_before = 0;
  /// Tests that report "not done" after the operation is done.
  int tests_after = 0;
  /// Number of sizes that test writes. `buffers`, `done` and `sizes` are used with `tests_after` only.
  std::size_t buffers = 1;
  bool done = false;
  std::array<int, abi::kMaxReceiveBuffers> sizes{};
  void* real = nullptr;
  bool posted = false;

  /// Posts the operation once. When the base plugin answers NULL, the next call tries again.
  Result forward() {
    if (posted || !post) return Result::kSuccess;
    const Result result = post(&real);
    posted = result == Result::kSuccess && real != nullptr;
    return result;
  }
};

/// Calls `action(test)` after each test that ends its request: it is done or has failed.
template <typename Action>
void on_end(Net& net, Action action) {
  after(net.test, [action](Test test, Result result) {
    if (result != Result::kSuccess || *test.done == 1) action(test);
    return result;
  });
}

/// Thread safety: `hold` and the installed test may run on any thread.
class HeldRequests {
 public:
  /// Makes `net.test` post a held request, and then test the base plugin's request.
  static HeldRequests& install(Net& net) {
    auto& held_requests = kept<HeldRequests>();
    net.test = [&held_requests, good = net.test](Test test) {
      HeldRequest* const held = held_requests.find(test.request);
      return held == nullptr ? good(test) : held_requests.test(*held, test, good);
    };
    on_end(net, [&](Test test) { held_requests.erase(test.request); });
    return held_requests;
  }

  HeldRequest* hold(std::function<Result(void** request)> post) {
    const std::lock_guard lock(mutex_);
    auto held = std::make_unique<HeldRequest>();
    held->post = std::move(post);
    HeldRequest* const request = held.get();
    requests_.emplace(request, std::move(held));
    return request;
  }
  /// Holds a send that `isend` will post.
  HeldRequest* hold(Send send, const Function<Send>& isend) {
    return hold([send, &isend](void** real) mutable {
      send.request = real;
      return isend(send);
    });
  }
  /// A request that counts as done with 0 bytes.
  HeldRequest* done() { return hold({}); }

 private:
  HeldRequest* find(void* request) {
    const std::lock_guard lock(mutex_);
    auto found = requests_.find(request);
    return found == requests_.end() ? nullptr : found->second.get();
  }
  void erase(void* request) {
    const std::lock_guard lock(mutex_);
    requests_.erase(request);
  }
  static Result test(HeldRequest& held, Test test, const Function<Test>& good) {
    *test.done = 0;
    if (!held.posted && held.tests_before-- > 0) return Result::kSuccess;
    const Result result = held.forward();
    if (result != Result::kSuccess) return result;
    if (held.post && !held.posted) return result;
    if (!held.post) {
      *test.done = 1;
      if (test.sizes != nullptr) *test.sizes = 0;
      return result;
    }
    if (held.tests_after == 0 && !held.done) return good({held.real, test.done, test.sizes});
    if (!held.done) {
      const Result tested = good({held.real, test.done, held.sizes.data()});
      if (tested != Result::kSuccess || *test.done == 0) return tested;
      held.done = true;
    }
    *test.done = held.tests_after-- > 0 ? 0 : 1;
    if (*test.done == 1 && test.sizes != nullptr) std::copy_n(held.sizes.begin(), held.buffers, test.sizes);
    return result;
  }

  std::mutex mutex_;
  std::map<void*, std::unique_ptr<HeldRequest>> requests_;
};

/// Records isend, irecv and test. Thread safety: any thread.
class InFlight {
 public:
  static InFlight& watch(Net& net) {
    auto& in_flight = kept<InFlight>();
    on_success(net.isend, [&](Send send) { in_flight.begin(*send.request, {send.comm, false, {send.data}}); });
    on_success(net.irecv, [&](Receive receive) {
      in_flight.begin(*receive.request,
                      {receive.comm, true, std::vector<void*>(receive.data, receive.data + receive.n)});
    });
    on_end(net, [&](Test test) { in_flight.end(test.request); });
    return in_flight;
  }

  /// Forgets the operations of a closed comm.
  void forget(const void* comm) {
    const std::lock_guard lock(mutex_);
    std::erase_if(operations_, [&](const auto& entry) { return entry.second.comm == comm; });
  }
  /// Number of receives in flight on a comm (null: on all).
  int receives(const void* comm = nullptr) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::count_if(operations_.begin(), operations_.end(), [&](const auto& entry) {
      return entry.second.receives && (comm == nullptr || entry.second.comm == comm);
    }));
  }
  /// Number of sends in flight on a comm.
  int sends(const void* comm) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::count_if(operations_.begin(), operations_.end(), [&](const auto& entry) {
      return !entry.second.receives && entry.second.comm == comm;
    }));
  }
  /// Number of comms other than this one with receives in flight.
  std::size_t other_receiving_comms(const void* comm) const {
    const std::lock_guard lock(mutex_);
    std::set<const void*> others;
    for (const auto& [request, operation] : operations_)
      if (operation.receives && operation.comm != comm) others.insert(operation.comm);
    return others.size();
  }
  /// Buffers of the receives in flight on a comm.
  std::vector<void*> buffers(const void* comm) const {
    const std::lock_guard lock(mutex_);
    std::vector<void*> all;
    for (const auto& [request, operation] : operations_) {
      if (operation.comm != comm || !operation.receives) continue;
      all.insert(all.end(), operation.buffers.begin(), operation.buffers.end());
    }
    return all;
  }
  /// Whether a thread other than the caller's has operations in flight on the comm (null: on any).
  bool used_by_another_thread(const void* comm = nullptr) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(operations_.begin(), operations_.end(), [&](const auto& entry) {
      return (comm == nullptr || entry.second.comm == comm) && entry.second.thread != std::this_thread::get_id();
    });
  }

 private:
  struct Operation {
    const void* comm;
    bool receives;
    std::vector<void*> buffers;
    std::thread::id thread = std::this_thread::get_id();
  };

  void begin(const void* request, Operation operation) {
    const std::lock_guard lock(mutex_);
    operations_.insert_or_assign(request, std::move(operation));
  }
  void end(const void* request) {
    const std::lock_guard lock(mutex_);
    operations_.erase(request);
  }
  mutable std::mutex mutex_;
  std::map<const void*, Operation> operations_;
};

/// A receive with copies of its argument arrays.
struct CopiedReceive {
  Receive call;
  std::vector<void*> data;
  std::vector<std::size_t> sizes;
  std::vector<int> tags;
  std::vector<void*> mhandles;

  explicit CopiedReceive(const Receive& receive)
      : call(receive),
        data(call.data, call.data + call.n),
        sizes(call.sizes, call.sizes + call.n),
        tags(call.tags, call.tags + call.n),
        mhandles(call.mhandles, call.mhandles + call.n) {}

  Result post(const Function<Receive>& irecv, void** request) {
    return irecv({call.comm, call.n, data.data(), sizes.data(), tags.data(), mhandles.data(), request});
  }
};

/// Makes irecv post receives with the argument arrays that `change(copy)` produces.
template <typename Change>
void change_receives(Net& net, Change change) {
  net.irecv = [change, good = net.irecv](Receive receive) {
    CopiedReceive copy(receive);
    change(copy);
    return copy.post(good, receive.request);
  };
}

/// Arguments of an irecv.
struct PostedReceive {
  std::vector<void*> data;
  std::vector<std::size_t> sizes;
};

/// Calls `change(receive, sizes)` in each test that reports a receive as done. `sizes`: test's argument.
template <typename Change>
void when_receive_done(Net& net, Change change) {
  auto& receives = kept<PointerMap<PostedReceive>>();
  on_success(net.irecv, [&](Receive receive) {
    receives.put(*receive.request, {std::vector<void*>(receive.data, receive.data + receive.n),
                                    std::vector<std::size_t>(receive.sizes, receive.sizes + receive.n)});
  });
  on_success(net.test, [&receives, change](Test test) {
    if (const auto receive = receives.take(test.request)) change(*receive, test.sizes);
  });
}

}  // namespace plugfest::mutants
