// What mutations remember about requests and comms. All members may be called from several threads at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "conformance/mutants/seam.h"

namespace plugfest::mutants {

/// A value for each live request (or comm, or registration).
template <typename Value>
class Ledger {
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
  void erase(const void* key) {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  template <typename Change>
  auto change(const void* key, Change change) {
    const std::lock_guard lock(mutex_);
    return change(values_[key]);
  }

 private:
  mutable std::mutex mutex_;
  std::map<const void*, Value> values_;
};

/// An operation that the caller believes posted: the good plugin learns of it later, or never.
///
/// Its address is the request that the caller gets. `install` makes test understand such requests.
struct HeldRequest {
  /// Hands the operation to the good plugin; empty: it counts as done with no bytes.
  std::function<Result(void** request)> post;
  /// Tests that find it not done before it is handed on.
  int tests_before = 0;
  void* real = nullptr;
  bool posted = false;

  /// Hands it on unless that was done. NULL from the good plugin leaves it for the next try.
  Result hand_on() {
    if (posted || !post) return Result::kSuccess;
    const Result result = post(&real);
    posted = result == Result::kSuccess && real != nullptr;
    return result;
  }
};

class HeldRequests {
 public:
  /// Makes `net.test` hand on held requests when they are tested, and test what came of it.
  void install(Net& net, const Net& good) {
    net.test = [this, &good](void* request, int* done, int* sizes) {
      HeldRequest* const held = find(request);
      if (held == nullptr) return good.test(request, done, sizes);
      *done = 0;
      if (!held->posted && held->tests_before-- > 0) return Result::kSuccess;
      const Result result = held->hand_on();
      if (result != Result::kSuccess) return result;
      if (held->post && !held->posted) return result;
      if (!held->post) {
        *done = 1;
        if (sizes != nullptr) *sizes = 0;
        return result;
      }
      return good.test(held->real, done, sizes);
    };
  }

  HeldRequest* hold(std::function<Result(void** request)> post) {
    const std::lock_guard lock(mutex_);
    auto held = std::make_unique<HeldRequest>();
    held->post = std::move(post);
    HeldRequest* const request = held.get();
    requests_.emplace(request, std::move(held));
    return request;
  }

 private:
  HeldRequest* find(void* request) {
    const std::lock_guard lock(mutex_);
    auto found = requests_.find(request);
    return found == requests_.end() ? nullptr : found->second.get();
  }

  std::mutex mutex_;
  std::map<void*, std::unique_ptr<HeldRequest>> requests_;
};

}  // namespace plugfest::mutants
