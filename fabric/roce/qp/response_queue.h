// The responses to READs and atomics that a responder must send, and the results of atomics that it must remember.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

class ProtectionDomain;

/// The response to a READ or an atomic.
struct Response {
  bool atomic = false;
  Psn first;                                 ///< PSN of the first packet
  std::uint32_t packets = 1;                 ///< number of packets of the response
  std::uint32_t sent = 0;                    ///< packets sent so far
  std::uint64_t address = 0;                 ///< address of a READ
  std::uint32_t key = 0;                     ///< key of a READ
  std::uint32_t length = 0;                  ///< bytes of a READ
  bool copies = false;                       ///< the bytes of a READ are copied, because they may change
  const ProtectionDomain* domain = nullptr;  ///< domain of the memory of a READ
  std::uint64_t original = 0;                ///< the value before an atomic
  std::uint32_t message_count = 0;
};

/// A ring of responses in the order of their requests. A response stays in it until the kernel has all its
/// packets.
class ResponseQueue {
 public:
  /// `capacity`: READs and atomics that the peer may have in flight. The ring has at least one entry, and keeps the
  /// responses that are in it.
  void set_capacity(unsigned capacity) {
    std::vector<Response> ring(std::max<std::uint64_t>(std::max(1u, capacity), end_ - first_));
    for (std::uint64_t i = first_; i != end_; ++i) ring[i % ring.size()] = responses_[i % responses_.size()];
    responses_ = std::move(ring);
  }

  bool empty() const { return first_ == end_; }
  bool full() const { return end_ - first_ >= responses_.size(); }
  void push(const Response& response) { responses_[end_++ % responses_.size()] = response; }
  void clear() { first_ = next_ = end_; }

  /// The response with the next packet to send; null if there is none.
  Response* next() { return next_ == end_ ? nullptr : &responses_[next_ % responses_.size()]; }
  /// Notes that all packets of next() are in a batch.
  void advance() { ++next_; }
  /// Notes that a batch begins with packet number `packet` of next(): the kernel has everything before it.
  void begin_batch(std::uint32_t packet) {
    first_ = next_;
    batch_start_ = packet;
  }
  /// Notes that the kernel has the last batch.
  void end_batch() { begin_batch(next_ == end_ ? 0 : next()->sent); }
  /// Notes that the last batch was discarded, so that its packets are sent again.
  void repeat_batch() {
    for (std::uint64_t i = first_; i != end_; ++i)
      responses_[i % responses_.size()].sent = i == first_ ? batch_start_ : 0;
    next_ = first_;
  }

 private:
  std::vector<Response> responses_;
  std::uint64_t first_ = 0;        ///< number of the oldest response that the kernel does not have completely
  std::uint64_t next_ = 0;         ///< number of next()
  std::uint64_t end_ = 0;          ///< number of all responses so far
  std::uint32_t batch_start_ = 0;  ///< first packet of the oldest response in the last batch
};

/// The results of the latest atomics, for requests that the peer repeats.
class AtomicResults {
 public:
  /// Keeps the latest results.
  void set_capacity(unsigned capacity) {
    std::vector<Result> latest(std::max(1u, capacity));
    const std::uint64_t kept = std::min<std::uint64_t>({count_, results_.size(), latest.size()});
    for (std::uint64_t i = 0; i < kept; ++i) latest[i] = results_[(count_ - kept + i) % results_.size()];
    results_ = std::move(latest);
    count_ = kept;
  }
  void clear() { count_ = 0; }
  void push(Psn psn, std::uint64_t original) { results_[count_++ % results_.size()] = {psn, original}; }

  /// The value before the atomic with this PSN.
  std::optional<std::uint64_t> find(Psn psn) const {
    const std::uint64_t kept = std::min<std::uint64_t>(count_, results_.size());
    for (std::uint64_t i = count_ - kept; i < count_; ++i) {
      const Result& result = results_[i % results_.size()];
      if (result.psn == psn) return result.original;
    }
    return std::nullopt;
  }

 private:
  struct Result {
    Psn psn;
    std::uint64_t original = 0;
  };

  std::vector<Result> results_;
  std::uint64_t count_ = 0;  ///< number of results so far, those that set_capacity() has dropped not counted
};

}  // namespace plugfest::roce
