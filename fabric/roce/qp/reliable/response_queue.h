// Responses to READs and atomics that a responder has to send, and results of atomics that it has to remember.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fabric/roce/wire/psn.h"

namespace plugfest::roce {

/// The response to a READ or an atomic.
struct Response {
  bool atomic = false;
  Psn first;                  ///< PSN of the first packet
  std::uint32_t packets = 1;  ///< of the response
  std::uint32_t sent = 0;     ///< packets sent so far
  std::uint64_t address = 0;  ///< of a READ
  std::uint32_t key = 0;      ///< of a READ
  std::uint32_t length = 0;   ///< of a READ, in bytes
  std::uint64_t original = 0;  ///< of an atomic: the value before
  std::uint32_t message_count = 0;
};

/// A ring of responses in the order of their requests.
class ResponseQueue {
 public:
  /// `capacity`: READs and atomics that the peer may have in flight. At least one place exists.
  void set_capacity(unsigned capacity) { responses_.assign(std::max(1u, capacity), {}); }

  bool empty() const { return first_ == end_; }
  bool full() const { return end_ - first_ >= responses_.size(); }
  void push(const Response& response) { responses_[end_++ % responses_.size()] = response; }
  Response& front() { return responses_[first_ % responses_.size()]; }
  void pop() { ++first_; }
  void clear() { first_ = end_; }

 private:
  std::vector<Response> responses_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
};

/// The results of the latest atomics, for requests that the peer repeats.
class AtomicResults {
 public:
  void set_capacity(unsigned capacity) { results_.assign(std::max(1u, capacity), {}); }
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
  std::uint64_t count_ = 0;  ///< of all atomics so far
};

}  // namespace plugfest::roce
