// Waits for conditions that no descriptor reports.
#pragma once

#include <chrono>
#include <thread>

namespace plugfest {

/// Calls `condition` every `interval` until it returns true. Returns false if it is still false after `timeout`.
/// Thread safety: the same as `condition`.
template <typename Condition>
bool wait_until(const Condition& condition, std::chrono::milliseconds timeout = std::chrono::seconds(30),
                std::chrono::microseconds interval = std::chrono::milliseconds(1)) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(interval);
  }
  return true;
}

}  // namespace plugfest
