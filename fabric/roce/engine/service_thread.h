// The thread that serves a NIC when the program does not poll.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "fabric/system/clock.h"
#include "fabric/system/descriptor.h"

namespace plugfest::roce {

class NicEngine;

/// Whether to serve at once when a packet comes although somebody has polled a moment ago. That is right for programs
/// that poll now and then and otherwise wait for memory to change, and wrong for those that poll all the time: there
/// the thread would only be in the way. Judged by what serving found.
class Eagerness {
 public:
  bool eager() const { return credit_ > 0; }

  /// `waited`: for the program to stop polling. `found`: packets were there then.
  void served(bool waited, bool found) {
    if (credit_ > 0) {
      credit_ = found ? std::min(credit_ + kGain, kMostCredit) : credit_ - 1;
    } else if (waited && found) {
      if (++found_late_ >= kOftenLate) credit_ = kMostCredit, found_late_ = 0;
    }
  }

 private:
  static constexpr int kOftenLate = 4;
  static constexpr int kGain = 2;  // to find packets one time in three is often enough
  static constexpr int kMostCredit = 64;

  int credit_ = 0;
  int found_late_ = 0;
};

/// As long as the program polls or posts, this thread leaves the packets to it and looks every 50 µs whether it still
/// does. Then it takes over: it sleeps until a packet comes or a timer is due, and serves.
class ServiceThread {
 public:
  /// Errors: std::system_error.
  explicit ServiceThread(NicEngine& nic);
  ~ServiceThread();  ///< stops it
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  /// Ends the thread and waits for it. Until then it uses the NIC, which uses this object. Once is enough.
  void stop();

  /// Wakes it if it would sleep beyond `deadline`. Any thread.
  void see_to(Nanoseconds deadline);

  /// Has it look at the NIC's descriptors anew. Any thread.
  void wake();

  /// In the child after fork, where the thread does not exist: lets go of it.
  void become_child();

 private:
  void run();
  bool sleep_on_packets();
  bool wait_while_called();
  void stay_away();

  NicEngine& nic_;
  Descriptor wake_;
  std::atomic<bool> stop_{false};
  std::atomic<Nanoseconds> sleeps_until_;
  std::uint64_t calls_seen_ = 0;  ///< the thread's own, as the next
  Eagerness eagerness_;
  std::thread thread_;
};

}  // namespace plugfest::roce
