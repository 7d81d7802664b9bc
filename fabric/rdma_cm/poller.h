// The thread that waits for sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "fabric/system/file.h"

namespace plugfest::rdma_cm {

/// Waits for sockets, and calls their handlers in a thread of its own, which blocks all signals.
class Poller {
 public:
  /// Called with the events of epoll. It may remove sockets, including its own, and may be called spuriously. If it
  /// throws an exception, the poller shuts the connection of the socket down in both directions.
  using Handler = std::function<void(std::uint32_t events)>;

  /// `lock`: held during all calls, by the caller or, for handlers, by the thread. The poller and the lock must live
  /// until the process ends. Errors: std::system_error.
  explicit Poller(std::mutex& lock);

  /// Errors: std::system_error.
  void add(int socket, std::uint32_t events, Handler handler);
  void change(int socket, std::uint32_t events);
  void remove(int socket);

 private:
  void run();
  void end(int socket, const std::shared_ptr<Handler>& handler);

  std::mutex& lock_;
  Descriptor epoll_;
  std::unordered_map<int, std::shared_ptr<Handler>> handlers_;
};

/// Calls a handler after some time, unless it is destroyed before. Guarded by the poller's lock.
class Timer {
 public:
  /// `expired` may destroy the timer. Errors: std::system_error.
  Timer(Poller& poller, std::function<void()> expired);
  ~Timer() { poller_.remove(timer_.get()); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Calls the handler once after `delay`, instead of at the end of an earlier delay. Needs no memory or descriptor.
  void start(std::chrono::milliseconds delay);

 private:
  Poller& poller_;
  Descriptor timer_;
};

}  // namespace plugfest::rdma_cm
