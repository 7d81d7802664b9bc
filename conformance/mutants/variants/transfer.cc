// Variants that accept, progress and complete operations at other times than the base plugin.
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/mutants/faults/held_request.h"
#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"
#include "conformance/mutants/variants/plugin_thread.h"

namespace plugfest::mutants {
namespace {

/// Copies of irecv's argument arrays, which the caller may overwrite after the call.
struct ReceiveArguments {
  std::vector<void*> data;
  std::vector<std::size_t> sizes;
  std::vector<int> tags;
  std::vector<void*> mhandles;

  ReceiveArguments(int n, void** data, std::size_t* sizes, int* tags, void** mhandles)
      : data(data, data + n), sizes(sizes, sizes + n), tags(tags, tags + n), mhandles(mhandles, mhandles + n) {}

  Result post(const Net& net, void* comm, void** request) {
    return net.irecv(comm, static_cast<int>(data.size()), data.data(), sizes.data(), tags.data(), mhandles.data(),
                     request);
  }
};

/// One byte that the sender of a comm sends to its receiver before a message.
class Greetings {
 public:
  /// Makes one step of the greeting on `comm`. `post`: isend or irecv of the base plugin for the byte. `over` is set
  /// when the greeting has been sent or received.
  template <typename Post>
  Result step(const Net& good, void* comm, Post post, bool& over) {
    const std::lock_guard lock(mutex_);
    Greeting& greeting = greetings_[comm];
    over = greeting.over;
    if (over) return Result::kSuccess;
    if (greeting.mhandle == nullptr) {
      greeting.byte = std::make_unique<char>();
      const Result result = good.reg_mr(comm, greeting.byte.get(), 1, abi::kPointerHost, &greeting.mhandle);
      if (result != Result::kSuccess) return result;
    }
    if (greeting.request == nullptr) return post(greeting.byte.get(), greeting.mhandle, &greeting.request);
    int done = 0, size = 0;
    const Result result = good.test(greeting.request, &done, &size);
    if (result != Result::kSuccess || done == 0) return result;
    over = greeting.over = true;
    return good.dereg_mr(comm, greeting.mhandle);
  }
  /// Requires another greeting on `comm`.
  void renew(void* comm) {
    const std::lock_guard lock(mutex_);
    greetings_.erase(comm);
  }
  /// Ends the greeting on a comm that is closed.
  void forget(const Net& good, void* comm) {
    const std::lock_guard lock(mutex_);
    const auto greeting = greetings_.find(comm);
    if (greeting == greetings_.end()) return;
    if (greeting->second.mhandle != nullptr && !greeting->second.over) good.dereg_mr(comm, greeting->second.mhandle);
    greetings_.erase(greeting);
  }

 private:
  struct Greeting {
    std::unique_ptr<char> byte;
    void* mhandle = nullptr;
    void* request = nullptr;
    bool over = false;
  };
  std::mutex mutex_;
  std::map<void*, Greeting> greetings_;
};

/// Lets the base plugin post an operation only after a greeting: the first of a comm, or each.
void greet_before_messages(Net& net, const Net& good, bool each) {
  auto greetings = std::make_shared<Greetings>();
  auto posted = [greetings, each](Result result, void* comm, void** request) {
    if (each && result == Result::kSuccess && *request != nullptr) greetings->renew(comm);
    return result;
  };
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    *request = nullptr;
    bool over = false;
    auto greet = [&](void* byte, void* own, void** greeting) { return good.isend(comm, byte, 1, 0, own, greeting); };
    const Result result = greetings->step(good, comm, greet, over);
    if (result != Result::kSuccess || !over) return result;
    return posted(good.isend(comm, data, size, tag, mhandle, request), comm, request);
  };
  net.irecv = [=, &good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                         void** request) {
    *request = nullptr;
    bool over = false;
    auto greet = [&](void* byte, void* own, void** greeting) {
      std::size_t one = 1;
      int tag = 0;
      return good.irecv(comm, 1, &byte, &one, &tag, &own, greeting);
    };
    const Result result = greetings->step(good, comm, greet, over);
    if (result != Result::kSuccess || !over) return result;
    return posted(good.irecv(comm, n, data, sizes, tags, mhandles, request), comm, request);
  };
  net.close_send = [=, &good](void* comm) {
    greetings->forget(good, comm);
    return good.close_send(comm);
  };
  net.close_recv = [=, &good](void* comm) {
    greetings->forget(good, comm);
    return good.close_recv(comm);
  };
}

}  // namespace

// irecv returns no request until the sender has called isend once.
VARIANT(defers_receives) { greet_before_messages(net, good, false); }

// irecv returns no request until the sender has called isend for the same message. maxRecvs is 1.
VARIANT(receives_follow_sends) {
  greet_before_messages(net, good, true);
  net.get_properties = one_buffer_per_receive(good);
}

// Keeps one receive of a comm in flight, and returns no request for more.
VARIANT(one_receive_at_a_time) {
  const auto in_flight = InFlight::watch(net, good);
  net.irecv = [in_flight, irecv = net.irecv](void* comm, int n, void** data, std::size_t* sizes, int* tags,
                                             void** mhandles, void** request) {
    *request = nullptr;
    if (in_flight->receives(comm) > 0) return Result::kSuccess;
    return irecv(comm, n, data, sizes, tags, mhandles, request);
  };
  net.close_recv = [in_flight, &good](void* comm) {
    in_flight->forget(comm);
    return good.close_recv(comm);
  };
}

// Reports a completed operation in the twentieth test after its completion.
VARIANT(completes_late) {
  auto held_requests = std::make_shared<HeldRequests>();
  held_requests->install(net, good);
  auto late = [held_requests](void* real, std::size_t buffers, void** request) {
    *request = nullptr;
    if (real == nullptr) return;
    HeldRequest* const held = held_requests->hold([](void**) { return Result::kSuccess; });
    held->real = real;
    held->posted = true;
    held->tests_after = 20;
    held->buffers = buffers;
    *request = held;
  };
  net.isend = [&good, late](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    void* real = nullptr;
    const Result result = good.isend(comm, data, size, tag, mhandle, &real);
    late(result == Result::kSuccess ? real : nullptr, 1, request);
    return result;
  };
  net.irecv = [&good, late](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                            void** request) {
    void* real = nullptr;
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, &real);
    late(result == Result::kSuccess ? real : nullptr, static_cast<std::size_t>(n), request);
    return result;
  };
}

// A rendezvous without a thread: an operation starts when its caller tests it or a later one, so a send completes only
// while the receiver makes calls.
VARIANT(needs_calls_of_the_peer) {
  // Sends with one tag, or all receives, of a comm.
  using Queue = std::pair<void*, std::int64_t>;
  constexpr std::int64_t kReceives = INT64_MIN;
  struct Order {
    std::mutex mutex;
    std::map<Queue, std::deque<HeldRequest*>> waiting;  // oldest first
    std::map<void*, Queue> queues;                      // by request

    void forget(void* comm) {
      const std::lock_guard lock(mutex);
      std::erase_if(waiting, [&](const auto& entry) { return entry.first.first == comm; });
      std::erase_if(queues, [&](const auto& entry) { return entry.second.first == comm; });
    }
  };
  auto held_requests = std::make_shared<HeldRequests>();
  auto order = std::make_shared<Order>();
  held_requests->install(net, good);
  auto hold = [held_requests, order](const Queue& queue, std::function<Result(void**)> post, void** request) {
    HeldRequest* const held = held_requests->hold(std::move(post));
    const std::lock_guard lock(order->mutex);
    order->waiting[queue].push_back(held);
    order->queues[held] = queue;
    *request = held;
    return Result::kSuccess;
  };
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    auto post = [=, &good](void** real) { return good.isend(comm, data, size, tag, mhandle, real); };
    return hold({comm, tag}, post, request);
  };
  net.irecv = [=, &good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                         void** request) {
    ReceiveArguments arguments(n, data, sizes, tags, mhandles);
    auto post = [=, &good](void** real) mutable { return arguments.post(good, comm, real); };
    return hold({comm, kReceives}, post, request);
  };
  net.test = [order, test = net.test](void* request, int* done, int* sizes) {
    {
      const std::lock_guard lock(order->mutex);
      const auto queue = order->queues.find(request);
      if (queue != order->queues.end()) {
        *done = 0;
        std::deque<HeldRequest*>& waiting = order->waiting[queue->second];
        while (!waiting.empty()) {
          const Result result = waiting.front()->forward();
          if (result != Result::kSuccess) return result;
          if (!waiting.front()->posted) break;
          waiting.pop_front();
        }
        if (!static_cast<HeldRequest*>(request)->posted) return Result::kSuccess;
      }
    }
    const Result result = test(request, done, sizes);
    if (result != Result::kSuccess || *done == 0) return result;
    const std::lock_guard lock(order->mutex);
    order->queues.erase(request);
    return result;
  };
  net.close_send = [=, &good](void* comm) {
    order->forget(comm);
    return good.close_send(comm);
  };
  net.close_recv = [=, &good](void* comm) {
    order->forget(comm);
    return good.close_recv(comm);
  };
}

namespace {

/// A thread that tests all requests in flight, from the first init to the last finalize.
class ProgressThread : public PluginThread {
 public:
  explicit ProgressThread(const Net& good) : good_(good) {}

  /// Posts an operation on `buffers` buffers with `post` and hands its request to the thread.
  template <typename Post>
  Result add(void* comm, std::size_t buffers, void** request, Post post) {
    *request = nullptr;
    const std::lock_guard lock(mutex_);
    void* real = nullptr;
    const Result result = post(&real);
    if (result != Result::kSuccess || real == nullptr) return result;
    auto operation = std::make_unique<Operation>();
    operation->comm = comm;
    operation->real = real;
    operation->buffers = buffers;
    *request = operation.get();
    operations_.push_back(std::move(operation));
    changed_.notify_all();
    return result;
  }
  Result test(void* request, int* done, int* sizes) {
    const std::lock_guard lock(mutex_);
    for (auto operation = operations_.begin(); operation != operations_.end(); ++operation) {
      if (operation->get() != request) continue;
      *done = (*operation)->done;
      const Result result = (*operation)->result;
      if (*done == 0 && result == Result::kSuccess) return result;
      if (sizes != nullptr) std::copy_n((*operation)->sizes.begin(), (*operation)->buffers, sizes);
      operations_.erase(operation);
      return result;
    }
    return good_.test(request, done, sizes);  // a flush
  }
  /// Closes a comm with `close`.
  template <typename Close>
  Result end(void* comm, Close close) {
    const std::lock_guard lock(mutex_);
    std::erase_if(operations_, [&](const auto& operation) { return operation->comm == comm; });
    return close(comm);
  }

 private:
  struct Operation {
    void* comm = nullptr;
    void* real = nullptr;
    int done = 0;
    Result result = Result::kSuccess;
    std::size_t buffers = 1;
    std::array<int, abi::kMaxReceiveBuffers> sizes{};
  };
  bool step(std::unique_lock<std::mutex>& lock, bool ending) override {
    bool busy = false;
    for (const auto& operation : operations_) {
      if (operation->done != 0 || operation->result != Result::kSuccess) continue;
      busy = true;
      operation->result = good_.test(operation->real, &operation->done, operation->sizes.data());
    }
    if (busy) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else if (!ending) {
      changed_.wait(lock);
    }
    return false;
  }

  const Net& good_;
  std::deque<std::unique_ptr<Operation>> operations_;
};

}  // namespace

// A thread of the plugin makes all progress; test only reports it.
VARIANT(has_a_thread) {
  auto progress = std::make_shared<ProgressThread>(good);
  PluginThread::install(net, good, progress);
  net.isend = [&good, progress](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return progress->add(comm, 1, request,
                         [&](void** real) { return good.isend(comm, data, size, tag, mhandle, real); });
  };
  net.irecv = [&good, progress](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                void** request) {
    return progress->add(comm, static_cast<std::size_t>(n), request,
                         [&](void** real) { return good.irecv(comm, n, data, sizes, tags, mhandles, real); });
  };
  net.test = [progress](void* request, int* done, int* sizes) { return progress->test(request, done, sizes); };
  net.close_send = [&good, progress](void* comm) { return progress->end(comm, good.close_send); };
  net.close_recv = [&good, progress](void* comm) { return progress->end(comm, good.close_recv); };
}

}  // namespace plugfest::mutants
