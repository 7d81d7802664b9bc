// Variants whose comms begin and end earlier or later than the comms of the base plugin.
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/faults/variant_plugin_thread.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// connect and accept make no progress before the hundredth call.
VARIANT(connects_after_many_calls) {
  auto& calls = kept<PointerMap<int>>();
  const auto wait = [&calls](auto& function, auto key_of) {
    after(function, [&calls, key_of](const auto& call, Result result) {
      if (result != Result::kSuccess || call.has_outcome()) calls.erase(key_of(call));
      return result;
    });
    delay(function, [&calls, key_of](const auto& call) { return calls.add(key_of(call), 1) < 100; });
  };
  wait(net.connect, [](const Connect& connect) { return connect.handle; });
  wait(net.accept, [](const Accept& accept) { return accept.listener; });
}

// As in NCCL, the thread that made a comm also closes it, and one thread transfers.
MUTANT(two_threads_for_a_comm, breaks().also("CN-28", "CL-07", "TH-04")) {
  auto& makers = kept<ThreadMap>();
  auto& users = kept<ThreadMap>();
  const auto new_comm = [](const auto& call) { return *call.comm; };
  const auto comm = [](const auto& call) { return call.comm; };
  const auto closed = [](void* comm) { return comm; };
  record_thread(net.listen, makers, new_comm);
  record_thread(net.connect, makers, new_comm);
  record_thread(net.accept, makers, new_comm);
  bind_to_thread(net.accept, makers, [](const Accept& accept) { return accept.listener; });
  bind_to_thread(net.close_listen, makers, closed);
  bind_to_thread(net.close_send, makers, closed);
  bind_to_thread(net.close_recv, makers, closed);
  auto& comms = kept<PointerMap<void*>>();  // by request
  const auto record_comm = [&comms](const auto& call) { comms.put(*call.request, call.comm); };
  on_success(net.isend, record_comm);
  on_success(net.irecv, record_comm);
  on_success(net.test, [&comms](const Test& test) { comms.erase(test.request); });
  bind_to_thread(net.isend, users, comm);
  bind_to_thread(net.irecv, users, comm);
  bind_to_thread(net.test, users, [&comms](const Test& test) { return comms.find(test.request).value_or(nullptr); });
  for (Function<void*>* close : {&net.close_send, &net.close_recv})
    before(*close, [&users](void* comm) { users.erase(comm); });
}

namespace {

// Comms that accept has returned before any peer connected. A thread accepts the peers.
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
  // Null: no early comm.
  void* find(void* comm) {
    const std::lock_guard lock(mutex_);
    return find_locked(comm);
  }
  Result reg_mr(Register call) {
    const std::lock_guard lock(mutex_);
    Comm& early = *find_locked(call.comm);
    early.regions.push_back(std::make_unique<Region>(Region{call, nullptr}));
    *call.mhandle = early.regions.back().get();
    return early.real == nullptr ? Result::kSuccess : register_now(early, *early.regions.back());
  }
  Result dereg_mr(Deregister call) {
    if (call.mhandle == nullptr) return Result::kInvalidArgument;
    const std::lock_guard lock(mutex_);
    Comm& early = *find_locked(call.comm);
    auto* const region = static_cast<Region*>(call.mhandle);
    const Result result = region->real == nullptr ? Result::kSuccess : good_.dereg_mr({early.real, region->real});
    std::erase_if(early.regions, [&](const auto& entry) { return entry.get() == region; });
    return result;
  }
  Result irecv(Receive receive) {
    const std::lock_guard lock(mutex_);
    receive.comm = find_locked(receive.comm)->real;
    if (receive.comm == nullptr) {
      *receive.request = nullptr;
      return Result::kSuccess;
    }
    std::vector<void*> real = real_handles(receive.n, receive.mhandles);
    receive.mhandles = real.data();
    return good_.irecv(receive);
  }
  Result iflush(Flush flush) {
    const std::lock_guard lock(mutex_);
    std::vector<void*> real = real_handles(flush.n, flush.mhandles);
    flush.comm = find_locked(flush.comm)->real;
    flush.mhandles = real.data();
    return good_.iflush(flush);
  }
  Result consumed(Consumed call) {
    const std::lock_guard lock(mutex_);
    return good_.irecv_consumed({find_locked(call.comm)->real, call.n, call.request});
  }
  Result close(void* comm) {
    const std::lock_guard lock(mutex_);
    Comm& early = *find_locked(comm);
    Result result = Result::kSuccess;
    if (early.real != nullptr)
      result = good_.close_recv(early.real);
    else if (--listeners_[early.listener].waiting == 0)
      result = release(early.listener);
    std::erase_if(comms_, [&](const auto& early) { return early.get() == comm; });
    return result;
  }

 private:
  struct Region {
    Register call;
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
    for (const auto& early : comms_)
      if (early.get() == comm) return early.get();
    return nullptr;
  }
  static std::vector<void*> real_handles(int n, void** mhandles) {
    std::vector<void*> real;
    for (int i = 0; i < n; ++i) real.push_back(static_cast<Region*>(mhandles[i])->real);
    return real;
  }
  Result register_now(Comm& early, Region& region) {
    return good_.reg_mr({early.real, region.call.data, region.call.size, region.call.type, &region.real});
  }
  // Closes a listener that the caller has closed and that has no comm waiting for a peer.
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
      if (good_.accept({comm->listener, &real}) == Result::kSuccess && real != nullptr) {
        comm->real = real;
        for (const auto& region : comm->regions) register_now(*comm, *region);
        --listeners_[comm->listener].waiting;
        release(comm->listener);
      } else {
        waits = true;
      }
    }
    if (ending) return false;
    if (waits)
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    else
      changed_.wait(lock);
    return false;
  }

  const Net& good_;
  std::vector<std::unique_ptr<Comm>> comms_;
  std::map<void*, Listener> listeners_;
};

}  // namespace

// accept returns a comm at once, like a plugin without connections. Its receives are deferred until a peer connects.
VARIANT(accepts_at_once) {
  auto& early = *new EarlyComms(good);
  PluginThread::install(net, early);
  net.accept = [&](Accept accept) {
    *accept.comm = early.accept(accept.listener);
    return Result::kSuccess;
  };
  net.close_listen = [&](void* comm) { return early.close_listen(comm); };
  net.reg_mr = [&](Register call) { return early.find(call.comm) == nullptr ? good.reg_mr(call) : early.reg_mr(call); };
  net.dereg_mr = [&](Deregister call) {
    return early.find(call.comm) == nullptr ? good.dereg_mr(call) : early.dereg_mr(call);
  };
  net.irecv = [&](Receive receive) { return early.irecv(receive); };
  net.iflush = [&](Flush flush) { return early.iflush(flush); };
  net.irecv_consumed = [&](Consumed call) { return early.consumed(call); };
  net.close_recv = [&](void* comm) { return early.find(comm) == nullptr ? good.close_recv(comm) : early.close(comm); };
}

namespace {

// Closes comms on its own thread, some milliseconds after the call, and the rest in finalize.
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
  auto& closer = kept<Closer>();
  PluginThread::install(net, closer);
  for (Function<void*> Net::*close : {&Net::close_send, &Net::close_recv, &Net::close_listen})
    net.*close = [&, close](void* comm) { return closer.later([&, close, comm] { (good.*close)(comm); }); };
}

}  // namespace plugfest::mutants
