// Operations that a mutation accepts and passes to the base plugin later, or never.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

/// A held operation. Its address is the request that the caller gets.
struct HeldRequest {
  /// Posts the operation to the base plugin; empty: the operation counts as done with no bytes.
  std::function<Result(void** request)> post;
  /// Tests that report "not done" before the operation is posted.
  int tests_before = 0;
  /// Tests that report "not done" after the operation is done.
  int tests_after = 0;
  /// Number of sizes that test writes. Used with `tests_after` only, as are `done` and `sizes`.
  std::size_t buffers = 1;
  bool done = false;
  std::array<int, abi::kMaxReceiveBuffers> sizes{};
  void* real = nullptr;
  bool posted = false;

  /// Posts the operation unless it has been posted. When the base plugin answers NULL, the next call tries again.
  Result forward() {
    if (posted || !post) return Result::kSuccess;
    const Result result = post(&real);
    posted = result == Result::kSuccess && real != nullptr;
    return result;
  }
};

/// Thread safety: `hold` and the installed test may run on any thread.
class HeldRequests {
 public:
  /// Makes `net.test` post held requests when they are tested, and test the base plugin's request after that.
  void install(Net& net, const Net& good) {
    net.test = [this, &good](void* request, int* done, int* sizes) {
      HeldRequest* const held = find(request);
      if (held == nullptr) return good.test(request, done, sizes);
      *done = 0;
      if (!held->posted && held->tests_before-- > 0) return Result::kSuccess;
      const Result result = held->forward();
      if (result != Result::kSuccess) return result;
      if (held->post && !held->posted) return result;
      if (!held->post) {
        *done = 1;
        if (sizes != nullptr) *sizes = 0;
        return result;
      }
      if (held->tests_after == 0 && !held->done) return good.test(held->real, done, sizes);
      if (!held->done) {
        const Result tested = good.test(held->real, done, held->sizes.data());
        if (tested != Result::kSuccess || *done == 0) return tested;
        held->done = true;
      }
      *done = held->tests_after-- > 0 ? 0 : 1;
      if (*done == 1 && sizes != nullptr) std::copy_n(held->sizes.begin(), held->buffers, sizes);
      return result;
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
