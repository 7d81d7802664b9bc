// Memory between inaccessible guard pages, and contents of messages. Base of the headers of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/wire/process.h"
#include "harness/wire/workloads.h"

namespace plugfest::rank {

/// Requests, answers and their encoding.
using namespace wire;

inline void* pointer(std::uint64_t number) { return reinterpret_cast<void*>(number); }
inline std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

/// Maps `size` zeroed bytes between two guard pages. `size` may be 0. `at_end`: the last byte lies before a guard page;
/// otherwise the first byte lies after one. Errors: std::system_error.
Mapping map_guarded(std::size_t size, bool at_end);

/// Unmaps a mapping of map_guarded with its guard pages.
void unmap_guarded(const Mapping& mapping);

/// Unmaps a mapping of map_guarded, whose pages are `pages` (Mapping::pages_address, pages_size).
void unmap_guarded(Range pages);

std::size_t page_size();

// Contents of messages, and the sizes, tags and groups of a stream's messages. Sender and receiver compute them from
// the same seed. Different seeds give different bytes in each group of eight.

/// Writes the first `size` bytes of the pattern of `seed`.
void fill_pattern(void* memory, std::size_t size, std::uint64_t seed);

/// Compares `memory` with the pattern of `seed`.
Difference compare_pattern(const void* memory, std::size_t size, std::uint64_t seed);

Difference compare_byte(const void* memory, std::size_t size, std::uint8_t value);

/// A pseudo-random number computed from `seed` and `index`; distinct for distinct `index`.
std::uint64_t mix(std::uint64_t seed, std::uint64_t index);

/// Consecutive messages that one irecv receives.
struct Group {
  std::uint64_t number = 0;
  std::uint64_t first = 0;
  std::uint32_t width = 1;
};

class StreamPlan {
 public:
  explicit StreamPlan(const Stream& request);

  std::uint64_t count() const { return request_.count; }
  /// Bytes of message k.
  std::uint32_t size(std::uint64_t k) const;
  /// Size of the receive buffer of message k.
  std::uint32_t posted_size(std::uint64_t k) const;
  /// Seed of the contents of message k; distinct for each message of a stream.
  std::uint64_t contents(std::uint64_t k) const;
  /// Tag of the message at index `place` of its group.
  std::int32_t tag(std::uint32_t place) const { return request_.tag + static_cast<std::int32_t>(place); }
  /// The largest size, sent or posted.
  std::uint32_t largest() const { return largest_; }
  bool contents_checked(std::uint64_t k) const { return k % request_.check_every == 0; }

  /// The group after `group`; for Group{0, 0, 0} the first one. Width 0: `group` was the last.
  Group next(const Group& group) const;
  /// The order in which the sends of a group are posted: indices into the group.
  std::vector<std::uint32_t> posting_order(const Group& group) const;

 private:
  Stream request_;
  std::uint32_t largest_ = 0;
};

}  // namespace plugfest::rank
