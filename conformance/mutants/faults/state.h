// State that mutations keep for comms, requests, handles and registrations.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

/// A value for each pointer. Thread safety: any thread.
template <typename Value>
class PointerMap {
 public:
  void put(const void* key, Value value) {
    const std::lock_guard lock(mutex_);
    values_.insert_or_assign(key, std::move(value));
  }
  std::optional<Value> find(const void* key) const {
    const std::lock_guard lock(mutex_);
    auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }
  bool contains(const void* key) const { return find(key).has_value(); }
  /// Erases and returns the value.
  std::optional<Value> take(const void* key) {
    const std::lock_guard lock(mutex_);
    auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    std::optional<Value> value = std::move(found->second);
    values_.erase(found);
    return value;
  }
  void erase(const void* key) { take(key); }
  template <typename Predicate>
  void erase_if(Predicate predicate) {
    const std::lock_guard lock(mutex_);
    std::erase_if(values_, [&](const auto& entry) { return predicate(entry.second); });
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return values_.empty();
  }
  template <typename Predicate>
  bool any(Predicate predicate) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(values_.begin(), values_.end(), [&](const auto& entry) { return predicate(entry.second); });
  }
  /// Returns `change(value)`; the value is a new one if there was none.
  template <typename Change>
  auto change(const void* key, Change change) {
    const std::lock_guard lock(mutex_);
    return change(values_[key]);
  }
  /// Adds to a number, initially 0. Returns the sum.
  Value add(const void* key, Value summand) {
    return change(key, [&](Value& value) { return value += summand; });
  }

 private:
  mutable std::mutex mutex_;
  std::map<const void*, Value> values_;
};

/// Thread safety: any thread.
class PointerSet {
 public:
  void insert(const void* key) { keys_.put(key, true); }
  bool contains(const void* key) const { return keys_.contains(key); }
  /// Returns whether `key` was in the set.
  bool erase(const void* key) { return keys_.take(key).has_value(); }
  bool empty() const { return keys_.empty(); }

 private:
  PointerMap<bool> keys_;
};

/// Counts the open send comms of the process.
inline std::atomic<int>& count_send_comms(Net& net) {
  auto& open = kept<std::atomic<int>>();
  on_success(net.connect, [&open](Connect) { ++open; });
  before(net.close_send, [&open](void*) { --open; });
  return open;
}

/// Makes connect return `code` while the process has `most` send comms.
inline void limit_send_comms(Net& net, int most, Result code) {
  const std::atomic<int>& open = count_send_comms(net);
  refuse(net.connect, code, [&open, most](Connect) { return open >= most; });
}

/// Records the comm of each request of `function`, isend or irecv.
template <typename Call>
PointerMap<void*>& comms_of_requests(Function<Call>& function) {
  auto& comms = kept<PointerMap<void*>>();
  on_success(function, [&comms](Call call) { comms.put(*call.request, call.comm); });
  return comms;
}

using HandleBytes = std::array<char, abi::kHandleBytes>;

inline HandleBytes handle_bytes(const void* handle) {
  HandleBytes bytes;
  std::memcpy(bytes.data(), handle, bytes.size());
  return bytes;
}

/// The handles that this process has made, with the contexts of their listeners.
class OwnHandles {
 public:
  /// Makes listen of `net` record the handles.
  static OwnHandles& watch(Net& net) {
    auto& own = kept<OwnHandles>();
    on_success(net.listen, [&own](Listen listen) {
      const std::lock_guard lock(own.mutex_);
      own.contexts_.insert_or_assign(handle_bytes(listen.handle), listen.context);
    });
    return own;
  }
  bool contain(const void* handle) { return context_of(handle).has_value(); }
  std::optional<void*> context_of(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = contexts_.find(handle_bytes(handle));
    return found == contexts_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::mutex mutex_;
  std::map<HandleBytes, void*> contexts_;
};

/// Makes connect record the comms of the process to itself.
inline PointerSet& comms_to_itself(Net& net) {
  auto& connecting = kept<PointerSet>();  // by handle address: a later call may find the handle's content changed
  auto& comms = kept<PointerSet>();
  OwnHandles& own = OwnHandles::watch(net);
  before(net.connect, [&](Connect connect) {
    if (own.contain(connect.handle)) connecting.insert(connect.handle);
  });
  on_success(net.connect, [&](Connect connect) {
    if (connecting.erase(connect.handle)) comms.insert(*connect.comm);
  });
  before(net.close_send, [&](void* comm) { comms.erase(comm); });
  return comms;
}

/// Makes connect refuse handles of its own process.
inline void refuse_connections_to_itself(Net& net) {
  OwnHandles& own = OwnHandles::watch(net);
  refuse(net.connect, Result::kInvalidUsage, [&own](Connect connect) { return own.contain(connect.handle); });
}

/// Makes regMr fail while a comm has `most` registrations.
inline void limit_registrations(Net& net, int most) {
  auto& counts = kept<PointerMap<int>>();
  refuse(net.reg_mr, Result::kSystemError, [&counts, most](Register call) { return counts.add(call.comm, 1) > most; });
  before(net.dereg_mr, [&counts](Deregister call) { counts.add(call.comm, -1); });
}

/// Allocates memory, writes to it and never frees it.
inline void leak(std::size_t bytes) {
  static std::atomic<void*> last;
  last = std::memset(std::malloc(bytes), 1, bytes);
}

using ThreadMap = PointerMap<std::thread::id>;

/// Records the thread of each call of `function` that made an object, by `object_of(arguments)`.
template <typename Call, typename ObjectOf>
void record_thread(Function<Call>& function, ThreadMap& threads, ObjectOf object_of) {
  on_success(function, [&threads, object_of](Call call) { threads.put(object_of(call), std::this_thread::get_id()); });
}

/// Makes `function` fail on another thread than that of `threads`, by `object_of(arguments)`. An object without a
/// thread gets that of the first call.
template <typename Call, typename ObjectOf>
void bind_to_thread(Function<Call>& function, ThreadMap& threads, ObjectOf object_of) {
  refuse(function, Result::kInternalError, [&threads, object_of](const Call& call) {
    return threads.change(object_of(call), [self = std::this_thread::get_id()](std::thread::id& owner) {
      if (owner == std::thread::id()) owner = self;
      return owner != self;
    });
  });
}

/// Makes `function` fail for a device while objects of another one exist: its outcomes that `close` has not closed.
template <typename Call>
void use_one_device(Function<Call>& function, Function<void*>& close) {
  auto& devices = kept<PointerMap<int>>();
  on_success(function, [&devices](Call call) { devices.put(*call.comm, call.device); });
  refuse(function, Result::kSystemError,
         [&devices](Call call) { return devices.any([&](int other) { return other != call.device; }); });
  before(close, [&devices](void* comm) { devices.erase(comm); });
}

/// The send comms on which isend or test has failed.
inline PointerSet& failed_send_comms(Net& net) {
  auto& comms = comms_of_requests(net.isend);
  auto& failed = kept<PointerSet>();
  on_failure(net.isend, [&failed](Send send) { failed.insert(send.comm); });
  on_failure(net.test, [&](Test test) {
    if (const auto comm = comms.find(test.request)) failed.insert(*comm);
  });
  return failed;
}

inline void report_cuda_memory(Net& net) {
  change_properties(net, [](Properties& properties) { properties.ptrSupport |= abi::kPointerCuda; });
}

}  // namespace plugfest::mutants
