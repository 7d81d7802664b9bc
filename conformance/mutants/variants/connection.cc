// Variants whose comms begin and end at other times than those of the base plugin.
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

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

/// Comms that accept has returned before any peer connected. A thread accepts the peers.
class EarlyComms : public PluginThread {
 public:
  EarlyComms(const Net& good) : good_(good) {}

  void* accept(void* listen_comm) {
    const std::lock_guard lock(mutex_);
    comms_.push_back(std::make_unique<Comm>());
    comms_.back()->listener = listen_comm;
    ++listeners_[listen_comm].waiting;
    changed_.notify_all();
    return comms_.back().get();
  }
  Result close_listen(void* listen_comm) {
    const std::lock_guard lock(mutex_);
    Listener& listener = listeners_[listen_comm];
    listener.closed = true;
    return release(listen_comm);
  }
  /// Null: no early comm.
  void* find(void* comm) {
    const std::lock_guard lock(mutex_);
    return find_locked(comm);
  }
  Result reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const std::lock_guard lock(mutex_);
    Comm& early = *find_locked(comm);
    early.regions.push_back(std::make_unique<Region>(Region{data, size, type, nullptr}));
    *mhandle = early.regions.back().get();
    return early.real == nullptr ? Result::kSuccess : register_now(early, *early.regions.back());
  }
  Result dereg_mr(void* comm, void* mhandle) {
    const std::lock_guard lock(mutex_);
    Comm& early = *find_locked(comm);
    auto* const region = static_cast<Region*>(mhandle);
    const Result result = region->real == nullptr ? Result::kSuccess : good_.dereg_mr(early.real, region->real);
    std::erase_if(early.regions, [&](const auto& each) { return each.get() == region; });
    return result;
  }
  Result irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    const std::lock_guard lock(mutex_);
    Comm& early = *find_locked(comm);
    if (early.real == nullptr) {
      *request = nullptr;
      return Result::kSuccess;
    }
    std::vector<void*> real = real_handles(n, mhandles);
    return good_.irecv(early.real, n, data, sizes, tags, real.data(), request);
  }
  Result iflush(void* comm, int n, void** data, int* sizes, void** mhandles, void** request) {
    const std::lock_guard lock(mutex_);
    std::vector<void*> real = real_handles(n, mhandles);
    return good_.iflush(find_locked(comm)->real, n, data, sizes, real.data(), request);
  }
  Result consumed(void* comm, int n, void* request) {
    const std::lock_guard lock(mutex_);
    return good_.irecv_consumed(find_locked(comm)->real, n, request);
  }
  Result close(void* comm) {
    const std::lock_guard lock(mutex_);
    Comm& early = *find_locked(comm);
    Result result = Result::kSuccess;
    if (early.real != nullptr) {
      result = good_.close_recv(early.real);
    } else if (--listeners_[early.listener].waiting == 0) {
      result = release(early.listener);
    }
    std::erase_if(comms_, [&](const auto& each) { return each.get() == comm; });
    return result;
  }

 private:
  struct Region {
    void* data;
    std::size_t size;
    int type;
    void* real;
  };
  struct Comm {
    void* listener = nullptr;
    void* real = nullptr;
    std::vector<std::unique_ptr<Region>> regions = {};
  };
  struct Listener {
    int waiting = 0;
    bool closed = false;
  };

  Comm* find_locked(void* comm) {
    for (const auto& each : comms_) {
      if (each.get() == comm) return each.get();
    }
    return nullptr;
  }
  static std::vector<void*> real_handles(int n, void** mhandles) {
    std::vector<void*> real;
    for (int i = 0; i < n; ++i) real.push_back(static_cast<Region*>(mhandles[i])->real);
    return real;
  }
  Result register_now(Comm& early, Region& region) {
    return good_.reg_mr(early.real, region.data, region.size, region.type, &region.real);
  }
  /// Closes a listener that is closed and has no comm that waits for a peer.
  Result release(void* listen_comm) {
    const auto found = listeners_.find(listen_comm);
    if (found == listeners_.end() || !found->second.closed || found->second.waiting > 0) return Result::kSuccess;
    listeners_.erase(found);
    return good_.close_listen(listen_comm);
  }
  bool step(std::unique_lock<std::mutex>& lock, bool ending) override {
    bool waits = false;
    for (const auto& comm : comms_) {
      if (comm->real != nullptr) continue;
      void* real = nullptr;
      if (good_.accept(comm->listener, &real) == Result::kSuccess && real != nullptr) {
        comm->real = real;
        for (const auto& region : comm->regions) register_now(*comm, *region);
        --listeners_[comm->listener].waiting;
        release(comm->listener);
      } else {
        waits = true;
      }
    }
    if (ending) return false;
    if (waits) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    } else {
      changed_.wait(lock);
    }
    return false;
  }

  const Net& good_;
  std::vector<std::unique_ptr<Comm>> comms_;
  std::map<void*, Listener> listeners_;
};

}  // namespace

// accept returns a comm at once, as a plugin without connections does. Its receives are deferred until a peer connects.
VARIANT(accepts_at_once) {
  auto early = std::make_shared<EarlyComms>(good);
  PluginThread::install(net, good, early);
  net.accept = [early](void* listen_comm, void** comm) {
    *comm = early->accept(listen_comm);
    return Result::kSuccess;
  };
  net.close_listen = [early](void* comm) { return early->close_listen(comm); };
  net.reg_mr = [&good, early](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    return early->find(comm) == nullptr ? good.reg_mr(comm, data, size, type, mhandle)
                                        : early->reg_mr(comm, data, size, type, mhandle);
  };
  net.dereg_mr = [&good, early](void* comm, void* mhandle) {
    return early->find(comm) == nullptr ? good.dereg_mr(comm, mhandle) : early->dereg_mr(comm, mhandle);
  };
  net.irecv = [early](auto... arguments) { return early->irecv(arguments...); };
  net.iflush = [early](auto... arguments) { return early->iflush(arguments...); };
  net.irecv_consumed = [early](auto... arguments) { return early->consumed(arguments...); };
  net.close_recv = [&good, early](void* comm) {
    return early->find(comm) == nullptr ? good.close_recv(comm) : early->close(comm);
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
