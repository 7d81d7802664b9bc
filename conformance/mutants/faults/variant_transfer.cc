// Variants that accept, progress and complete operations earlier or later than the base plugin.
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

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/faults/variant_plugin_thread.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// One byte that the sender of a comm sends to its receiver before a message.
class Greetings {
 public:
  // Makes one step of the greeting on `comm`. `post`: isend or irecv of the base plugin for the byte. `over` is set
  // when the greeting has been sent or received.
  template <typename Post>
  Result step(const Net& good, void* comm, Post post, bool& over) {
    const std::lock_guard lock(mutex_);
    Greeting& greeting = greetings_[comm];
    over = greeting.over;
    if (over) return Result::kSuccess;
    if (greeting.mhandle == nullptr) {
      greeting.byte = std::make_unique<char>();
      const Result result = good.reg_mr({comm, greeting.byte.get(), 1, abi::kPointerHost, &greeting.mhandle});
      if (result != Result::kSuccess) return result;
    }
    if (greeting.request == nullptr) return post(greeting.byte.get(), greeting.mhandle, &greeting.request);
    int done = 0, size = 0;
    const Result result = good.test({greeting.request, &done, &size});
    if (result != Result::kSuccess || done == 0) return result;
    over = greeting.over = true;
    return good.dereg_mr({comm, greeting.mhandle});
  }
  // Requires another greeting on `comm`.
  void renew(void* comm) {
    const std::lock_guard lock(mutex_);
    greetings_.erase(comm);
  }
  // Ends the greeting on a closed comm.
  void forget(const Net& good, void* comm) {
    const std::lock_guard lock(mutex_);
    const auto greeting = greetings_.find(comm);
    if (greeting == greetings_.end()) return;
    if (greeting->second.mhandle != nullptr && !greeting->second.over) good.dereg_mr({comm, greeting->second.mhandle});
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

// Lets the base plugin post an operation only after a greeting: once for each comm, or for each operation.
void greet_before_messages(Net& net, const Net& good, bool every_message) {
  auto& greetings = kept<Greetings>();
  const auto posted = [&greetings, every_message](Result result, const auto& call) {
    if (every_message && result == Result::kSuccess && *call.request != nullptr) greetings.renew(call.comm);
    return result;
  };
  net.isend = [&, posted](Send send) {
    *send.request = nullptr;
    bool over = false;
    const auto greet = [&](void* byte, void* own, void** greeting) {
      return good.isend({send.comm, byte, 1, 0, own, greeting});
    };
    const Result result = greetings.step(good, send.comm, greet, over);
    return result == Result::kSuccess && over ? posted(good.isend(send), send) : result;
  };
  net.irecv = [&, posted](Receive receive) {
    *receive.request = nullptr;
    bool over = false;
    const auto greet = [&](void* byte, void* own, void** greeting) {
      std::size_t one = 1;
      int tag = 0;
      return good.irecv({receive.comm, 1, &byte, &one, &tag, &own, greeting});
    };
    const Result result = greetings.step(good, receive.comm, greet, over);
    return result == Result::kSuccess && over ? posted(good.irecv(receive), receive) : result;
  };
  const auto forget = [&](void* comm) { greetings.forget(good, comm); };
  before(net.close_send, forget);
  before(net.close_recv, forget);
}

}  // namespace

// irecv returns no request until the sender has called isend once.
VARIANT(defers_receives) { greet_before_messages(net, good, false); }

// irecv returns no request until the sender has called isend for the same message. maxRecvs is 1.
VARIANT(receives_follow_sends) {
  greet_before_messages(net, good, true);
  accept_one_buffer_per_receive(net);
}

// Keeps one receive of a comm in flight, and returns no request for others.
VARIANT(one_receive_at_a_time) {
  InFlight& in_flight = InFlight::watch(net);
  before(net.irecv, [](Receive receive) { receive.clear_outcome(); });  // no optional completion
  delay(net.irecv, [&](Receive receive) { return in_flight.receives(receive.comm) > 0; });
  before(net.close_recv, [&](void* comm) { in_flight.forget(comm); });
}

// Reports a completed operation in the twentieth test after its completion.
VARIANT(completes_late) {
  HeldRequests& held_requests = HeldRequests::install(net);
  const auto hold = [&held_requests](void** request, std::size_t buffers) {
    HeldRequest* const held = held_requests.hold([](void**) { return Result::kSuccess; });
    held->real = *request;
    held->posted = true;
    held->tests_after = 20;
    held->buffers = buffers;
    *request = held;
  };
  on_success(net.isend, [hold](Send send) { hold(send.request, 1); });
  before(net.irecv, [](Receive receive) { receive.clear_outcome(); });  // no optional completion
  on_success(net.irecv, [hold](Receive receive) { hold(receive.request, static_cast<std::size_t>(receive.n)); });
}

// A rendezvous without a thread: an operation starts when its caller tests it or a later one, so that a send completes
// only while the receiver makes calls.
VARIANT(needs_calls_of_the_peer) {
  // Sends with one tag, or all receives, of a comm.
  using Queue = std::pair<void*, std::int64_t>;
  constexpr std::int64_t kReceives = INT64_MIN;
  struct Order {
    std::mutex mutex;
    std::map<Queue, std::deque<HeldRequest*>> waiting;  // oldest first
    std::map<void*, Queue> queues;                      // by request
  };
  HeldRequests& held_requests = HeldRequests::install(net);
  auto& order = kept<Order>();
  const auto enqueue = [&order](const Queue& queue, HeldRequest* held, void** request) {
    const std::lock_guard lock(order.mutex);
    order.waiting[queue].push_back(held);
    order.queues[held] = queue;
    *request = held;
    return Result::kSuccess;
  };
  net.isend = [&, enqueue](Send send) {
    return enqueue({send.comm, send.tag}, held_requests.hold(send, good.isend), send.request);
  };
  net.irecv = [&, enqueue](Receive receive) {
    auto post = [copy = CopiedReceive(receive), &good](void** real) mutable { return copy.post(good.irecv, real); };
    return enqueue({receive.comm, kReceives}, held_requests.hold(std::move(post)), receive.request);
  };
  net.test = [&order, forward = net.test](Test test) {
    {
      const std::lock_guard lock(order.mutex);
      const auto queue = order.queues.find(test.request);
      if (queue != order.queues.end()) {
        *test.done = 0;
        std::deque<HeldRequest*>& waiting = order.waiting[queue->second];
        while (!waiting.empty()) {
          const Result result = waiting.front()->forward();
          if (result != Result::kSuccess) return result;
          if (!waiting.front()->posted) break;
          waiting.pop_front();
        }
        if (!static_cast<HeldRequest*>(test.request)->posted) return Result::kSuccess;
      }
    }
    const Result result = forward(test);
    if (result != Result::kSuccess || *test.done == 0) return result;
    const std::lock_guard lock(order.mutex);
    order.queues.erase(test.request);
    return result;
  };
  const auto forget = [&order](void* comm) {
    const std::lock_guard lock(order.mutex);
    std::erase_if(order.waiting, [&](const auto& entry) { return entry.first.first == comm; });
    std::erase_if(order.queues, [&](const auto& entry) { return entry.second.first == comm; });
  };
  before(net.close_send, forget);
  before(net.close_recv, forget);
}

namespace {

// A thread that tests all requests in flight, from the first init to the last finalize.
class ProgressThread : public PluginThread {
 public:
  explicit ProgressThread(const Net& good) : good_(good) {}

  // Posts an operation on `buffers` buffers with `post` and hands its request to the thread.
  template <typename Call>
  Result add(Call call, std::size_t buffers, const Function<Call>& post) {
    const std::lock_guard lock(mutex_);
    call.clear_outcome();
    const Result result = post(call);
    if (result != Result::kSuccess || *call.request == nullptr) return result;
    auto operation = std::make_unique<Operation>();
    operation->comm = call.comm;
    operation->real = *call.request;
    operation->buffers = buffers;
    *call.request = operation.get();
    operations_.push_back(std::move(operation));
    changed_.notify_all();
    return result;
  }
  Result test(Test test) {
    const std::lock_guard lock(mutex_);
    for (auto operation = operations_.begin(); operation != operations_.end(); ++operation) {
      if (operation->get() != test.request) continue;
      *test.done = (*operation)->done;
      const Result result = (*operation)->result;
      if (*test.done == 0 && result == Result::kSuccess) return result;
      if (test.sizes != nullptr) std::copy_n((*operation)->sizes.begin(), (*operation)->buffers, test.sizes);
      operations_.erase(operation);
      return result;
    }
    return good_.test(test);  // a flush
  }
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
      operation->result = good_.test({operation->real, &operation->done, operation->sizes.data()});
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
  auto& progress = *new ProgressThread(good);
  PluginThread::install(net, progress);
  net.isend = [&](Send send) { return progress.add(send, 1, good.isend); };
  net.irecv = [&](Receive receive) { return progress.add(receive, static_cast<std::size_t>(receive.n), good.irecv); };
  net.test = [&](Test test) { return progress.test(test); };
  net.close_send = [&](void* comm) { return progress.end(comm, good.close_send); };
  net.close_recv = [&](void* comm) { return progress.end(comm, good.close_recv); };
}

}  // namespace plugfest::mutants
