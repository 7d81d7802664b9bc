// The thread that serves a NIC while the program does not poll.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "fabric/system/clock.h"

namespace plugfest::roce {

class Wakeup;

/// The work of a NIC that the service thread does, without the NIC's lock. The members may throw; the thread then
/// continues.
class ServiceWork {
 public:
  /// Lists the descriptors that become readable when there is something to receive, and the blocked send sockets.
  /// False if another thread held the lock for long.
  virtual bool list_descriptors(std::vector<int>& readable, std::vector<int>& writable) = 0;

  enum class Served {
    kNothing,  ///< no packets had arrived
    kPackets,
    kBusy,  ///< another thread held the lock for long
  };
  /// Does the same as Nic::poll(), but does not count as a call of the program.
  virtual Served serve() = 0;

  /// Writes the device's counter files and the capture file if that is due.
  virtual void publish_if_due() = 0;

  /// Whether a thread holds the lock.
  virtual bool busy() = 0;
  /// Number of calls of the program so far.
  virtual std::uint64_t calls() const = 0;

  /// Time of the first timer, delayed acknowledgement or publication.
  virtual Nanoseconds next_deadline() const = 0;

 protected:
  ~ServiceWork() = default;
};

/// Decides whether the service thread handles packets as soon as they arrive, although the program has just polled.
/// Programs that poll rarely and otherwise wait for memory to change need that; programs that poll all the time receive
/// the packets themselves. The decision depends on how often the thread found packets, and is made again after some
/// time.
class TakeoverPolicy {
 public:
  bool immediate() const { return credit_ > 0; }

  /// `waited`: the thread waited for the program to stop polling. `found`: the thread then found packets. `now`: the
  /// time, in nanoseconds.
  void served(bool waited, bool found, Nanoseconds now) {
    if (credit_ > 0) {
      credit_ = found ? std::min(credit_ + kGain, kMaxCredit) : credit_ - 1;
      if (++immediate_ >= kReview) credit_ = 0;
    } else if (waited && found) {
      // A program that polls all the time may lose its processor for a while, but not often.
      if (now - found_late_at_ > kLateInterval) found_late_ = 0;
      found_late_at_ = now;
      if (++found_late_ >= kFoundLateLimit) credit_ = kMaxCredit, found_late_ = 0, immediate_ = 0;
    }
  }

 private:
  static constexpr int kFoundLateLimit = 4;
  static constexpr Nanoseconds kLateInterval = 10'000'000;
  static constexpr int kGain = 2;  // immediate service pays if it finds packets one time in three
  static constexpr int kMaxCredit = 64;
  static constexpr int kReview = 1000;  // the program may poll all the time by then

  int credit_ = 0;
  int immediate_ = 0;  ///< number of immediate services since the decision
  int found_late_ = 0;
  Nanoseconds found_late_at_ = 0;
};

/// The thread that serves a NIC while the program neither polls nor posts.
///
/// While the program polls or posts, the thread leaves the packets to the program, and checks in intervals that grow
/// from 50 µs to 200 µs whether the program has stopped. Then the thread sleeps until a packet arrives or a timer is
/// due, and serves the NIC.
class ServiceThread {
 public:
  /// Starts the thread, which sleeps on `wakeup`. Errors: std::system_error.
  ServiceThread(ServiceWork& work, Wakeup& wakeup);
  ~ServiceThread();  ///< stops the thread
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  /// Ends the thread and waits for it. A second call does nothing.
  void stop();

  /// Releases the thread object in a child process after fork, where the thread does not exist.
  void detach_in_child();

 private:
  void run();
  void serve();
  bool wait_for_packets();
  bool wait_while_called();

  ServiceWork& work_;
  Wakeup& wakeup_;
  std::atomic<bool> stop_{false};
  std::uint64_t calls_seen_ = 0;  ///< used by the thread only
  TakeoverPolicy takeover_;       ///< used by the thread only
  std::thread thread_;
};

}  // namespace plugfest::roce
