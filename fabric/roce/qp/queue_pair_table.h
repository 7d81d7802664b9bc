// The queue pairs of a NIC by number.
#pragma once

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <unordered_map>

#include "fabric/system/number.h"

namespace plugfest::roce {

class QueuePairEngine;

/// Not thread-safe; guarded by the NIC's lock.
class QueuePairTable {
 public:
  /// Gives the queue pair an unused random number whose high byte is the process slot `slot`. Errors: std::system_error
  /// with ENOMEM if no number is left.
  std::uint32_t add(QueuePairEngine& queue_pair, std::uint8_t slot) {
    constexpr int kAttempts = 1 << 20;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint32_t number = static_cast<std::uint32_t>(slot) << 16 | (random_number() & 0xffff);
      if (queue_pairs_.try_emplace(number, &queue_pair).second) return number;
    }
    throw std::system_error(ENOMEM, std::generic_category(), "queue pair numbers");
  }

  void remove(std::uint32_t number) { queue_pairs_.erase(number); }

  /// Null if there is no queue pair with this number.
  QueuePairEngine* find(std::uint32_t number) const {
    const auto found = queue_pairs_.find(number);
    return found == queue_pairs_.end() ? nullptr : found->second;
  }

  auto begin() const { return queue_pairs_.begin(); }
  auto end() const { return queue_pairs_.end(); }

 private:
  std::unordered_map<std::uint32_t, QueuePairEngine*> queue_pairs_;
};

}  // namespace plugfest::roce
