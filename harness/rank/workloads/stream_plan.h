// What sender and receiver of a stream know without telling each other: sizes, contents, tags, groups of messages.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/rank/protocol/protocol.h"

namespace plugfest::rank {

/// Consecutive messages that one irecv takes.
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
  /// Bytes that its receive is posted for.
  std::uint32_t posted_size(std::uint64_t k) const;
  /// Seed of its contents; no two messages of a stream share one.
  std::uint64_t contents(std::uint64_t k) const;
  /// Tag of the message at that place of its group.
  std::int32_t tag(std::uint32_t place) const { return request_.tag + static_cast<std::int32_t>(place); }
  /// No message, posted or sent, is larger.
  std::uint32_t largest() const { return largest_; }
  bool contents_checked(std::uint64_t k) const { return k % request_.check_every == 0; }

  /// The group after `group`; the first one after Group{0, 0, 0}. Width 0: there is none.
  Group next(const Group& group) const;
  /// In which order the sends of a group are posted: places within the group.
  std::vector<std::uint32_t> posting_order(const Group& group) const;

 private:
  Stream request_;
  std::uint32_t largest_ = 0;
};

}  // namespace plugfest::rank
