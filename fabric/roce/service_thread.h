// The thread that serves a NIC while the program does not poll, and the handlers of fork and exit.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

namespace plugfest::roce {

class Nic;
class Wakeup;

/// While the object exists, calls Nic::on_fork_in_child() in every child that this process forks, and
/// Nic::on_exit() when the process calls exit(). Thread safety: any thread.
class ForkGuard {
 public:
  explicit ForkGuard(Nic& nic);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  Nic& nic_;
};

/// Decides whether the service thread handles packets as soon as they arrive, although the program has just polled.
/// Programs that poll rarely and otherwise wait for memory to change need that; programs that poll all the time receive
/// the packets themselves. The decision depends on how often the thread found packets.
class TakeoverPolicy {
 public:
  bool immediate() const { return credit_ > 0; }

  /// `waited`: the thread waited for the program to stop polling. `found`: the thread then found packets.
  void served(bool waited, bool found) {
    if (credit_ > 0) {
      credit_ = found ? std::min(credit_ + kGain, kMaxCredit) : credit_ - 1;
    } else if (waited && found) {
      if (++found_late_ >= kFoundLateLimit) credit_ = kMaxCredit, found_late_ = 0;
    }
  }

 private:
  static constexpr int kFoundLateLimit = 4;
  static constexpr int kGain = 2;  // immediate service pays if it finds packets one time in three
  static constexpr int kMaxCredit = 64;

  int credit_ = 0;
  int found_late_ = 0;
};

/// The thread that serves a NIC while the program neither polls nor posts.
///
/// While the program polls or posts, the thread leaves the packets to the program, and checks in intervals that grow
/// from 50 µs to 200 µs whether the program has stopped. Then the thread sleeps until a packet arrives or a timer is
/// due, and serves the NIC.
class ServiceThread {
 public:
  /// Starts the thread, which sleeps on `wakeup`. Errors: std::system_error.
  ServiceThread(Nic& nic, Wakeup& wakeup);
  ~ServiceThread();  ///< stops the thread
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  /// Ends the thread and waits for it. A second call does nothing.
  void stop();

  /// Releases the thread object in a child process after fork, where the thread does not exist.
  void detach_in_child();

 private:
  void run();
  bool wait_for_packets();
  bool wait_while_called();

  Nic& nic_;
  Wakeup& wakeup_;
  std::atomic<bool> stop_{false};
  std::uint64_t calls_seen_ = 0;  ///< used by the thread only
  TakeoverPolicy takeover_;       ///< used by the thread only
  std::thread thread_;
};

}  // namespace plugfest::roce
