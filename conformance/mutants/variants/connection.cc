// Variants whose comms begin and end at other times than those of the base plugin.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "conformance/mutants/mutant.h"
#include "conformance/mutants/pointer_map.h"

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
class Closer {
 public:
  void start() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) thread_ = std::thread([this] { run(); });
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      if (users_ == 0 || --users_ != 0) return;
    }
    changed_.notify_all();
    thread_.join();
  }
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

  void run() {
    std::unique_lock lock(mutex_);
    while (users_ != 0 || !closing_.empty()) {
      if (closing_.empty()) {
        changed_.wait(lock);
      } else if (users_ != 0 && std::chrono::steady_clock::now() < closing_.front().due) {
        changed_.wait_until(lock, closing_.front().due);
      } else {
        const std::function<void()> close = std::move(closing_.front().close);
        closing_.pop_front();
        lock.unlock();
        close();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int users_ = 0;
  std::thread thread_;
  std::deque<Closing> closing_;
};

}  // namespace

// The close functions return at once. Sockets and memory are released later, at the latest in finalize.
VARIANT(closes_later) {
  auto closer = std::make_shared<Closer>();
  net.init = [&good, closer](auto... arguments) {
    const Result result = good.init(arguments...);
    if (result == Result::kSuccess) closer->start();
    return result;
  };
  net.finalize = [&good, closer](void* context) {
    closer->stop();
    return good.finalize(context);
  };
  net.close_send = [&good, closer](void* comm) { return closer->later([&good, comm] { good.close_send(comm); }); };
  net.close_recv = [&good, closer](void* comm) { return closer->later([&good, comm] { good.close_recv(comm); }); };
  net.close_listen = [&good, closer](void* comm) { return closer->later([&good, comm] { good.close_listen(comm); }); };
}

}  // namespace plugfest::mutants
