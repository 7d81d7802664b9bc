// Variants whose comms begin and end at other times than those of the base plugin.
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"
#include "conformance/mutants/variants/plugin_thread.h"

namespace plugfest::mutants {

// connect and accept begin to work in the hundredth call.
VARIANT(connects_after_many_calls) {
  constexpr int kCalls = 100;
  auto calls = std::make_shared<PointerMap<int>>();
  net.connect = [&good, calls](void* context, int device, void* handle, void** comm) {
    *comm = nullptr;
    if (calls->change(handle, [](int& count) { return ++count; }) < kCalls) return Result::kSuccess;
    const Result result = good.connect(context, device, handle, comm);
    if (result != Result::kSuccess || *comm != nullptr) calls->erase(handle);
    return result;
  };
  net.accept = [&good, calls](void* listen_comm, void** comm) {
    *comm = nullptr;
    if (calls->change(listen_comm, [](int& count) { return ++count; }) < kCalls) return Result::kSuccess;
    const Result result = good.accept(listen_comm, comm);
    if (result != Result::kSuccess || *comm != nullptr) calls->erase(listen_comm);
    return result;
  };
}

namespace {

/// Closes comms on a thread of its own, some milliseconds after the call, and the rest in finalize.
class Closer : public PluginThread {
 public:
  Result later(std::function<void()> close) {
    const std::lock_guard lock(mutex_);
    closing_.push_back({std::chrono::steady_clock::now() + std::chrono::milliseconds(20), std::move(close)});
    changed_.notify_all();
    return Result::kSuccess;
  }

 private:
  struct Closing {
    std::chrono::steady_clock::time_point due;
    std::function<void()> close;
  };

  bool step(std::unique_lock<std::mutex>& lock, bool ending) override {
    if (closing_.empty()) {
      if (!ending) changed_.wait(lock);
    } else if (!ending && std::chrono::steady_clock::now() < closing_.front().due) {
      changed_.wait_until(lock, closing_.front().due);
    } else {
      const std::function<void()> close = std::move(closing_.front().close);
      closing_.pop_front();
      lock.unlock();
      close();
      lock.lock();
    }
    return !closing_.empty();
  }

  std::deque<Closing> closing_;
};

}  // namespace

// The close functions return at once. Sockets and memory are released later, at the latest in finalize.
VARIANT(closes_later) {
  auto closer = std::make_shared<Closer>();
  PluginThread::install(net, good, closer);
  net.close_send = [&good, closer](void* comm) { return closer->later([&good, comm] { good.close_send(comm); }); };
  net.close_recv = [&good, closer](void* comm) { return closer->later([&good, comm] { good.close_recv(comm); }); };
  net.close_listen = [&good, closer](void* comm) { return closer->later([&good, comm] { good.close_listen(comm); }); };
}

}  // namespace plugfest::mutants
