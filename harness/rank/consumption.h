// The calls of irecvConsumed that NCCL makes for completed receives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace plugfest::rank {

/// The number of receives that NCCL keeps on a comm, in flight or not yet consumed, if each has `count` buffers:
/// NCCL_STEPS, or a part of NCCL_SHARED_STEPS (transport/net.cc: maxDepth).
constexpr std::size_t most_receives(std::int32_t count) {
  constexpr std::size_t kSteps = 8, kSharedSteps = 2 * kSteps;
  return std::clamp<std::size_t>(kSharedSteps / static_cast<std::size_t>(std::max(count, 1)), 1, kSteps);
}

/// Receives for which irecvConsumed was not called yet. NCCL calls it for each receive, in the order of posting, once
/// the GPU has read the buffers: at the latest before it posts more than most_receives(), and never after an error or
/// an abort. A plugin may keep the resources of a receive until then. The count is that of the newest receive
/// (transport/net.cc: recvProxyProgress).
///
/// Thread safety: any thread.
class UnconsumedReceives {
 public:
  struct Call {
    std::uint64_t comm = 0;
    std::int32_t count = 0;
    std::uint64_t request = 0;
    bool operator==(const Call&) const = default;
  };

  void posted(std::uint64_t comm, std::int32_t count, std::uint64_t request);
  /// A test stored done for `request`, which may be a send.
  void completed(std::uint64_t request);
  /// Returns the calls to make before an irecv of `count` buffers.
  std::vector<Call> before_receive(std::uint64_t comm, std::int32_t count);
  /// The caller will call irecvConsumed for `request` itself. Returns the calls to make before: those of older
  /// receives.
  std::vector<Call> before_consumed(std::uint64_t comm, std::uint64_t request);
  /// The caller will make all further calls for `comm`. Returns the calls to make before.
  std::vector<Call> leave_to_caller(std::uint64_t comm);
  void closed(std::uint64_t comm);

 private:
  struct Receive {
    std::uint64_t request = 0;
    bool done = false;
  };
  struct Comm {
    std::deque<Receive> receives;
    std::int32_t newest_count = 1;
    bool left_to_caller = false;
  };
  // Takes completed receives, oldest first, until `kept` receives are left.
  static std::vector<Call> take(std::uint64_t number, Comm& comm, std::size_t kept);

  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Comm> comms_;
  // The comms of the receives that are not done, by request.
  std::unordered_map<std::uint64_t, std::uint64_t> in_flight_;
};

}  // namespace plugfest::rank
