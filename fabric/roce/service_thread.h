// The thread that serves a NIC when the program does not poll.
#pragma once

#include <atomic>
#include <thread>

#include "fabric/roce/clock.h"
#include "fabric/roce/descriptor.h"

namespace plugfest::roce {

class NicEngine;

/// As long as the program polls, this thread leaves the packets to it and looks every 50 µs whether it still does. Then
/// it takes over: it sleeps until a packet comes or a timer is due, and serves.
class ServiceThread {
 public:
  /// Errors: std::system_error.
  explicit ServiceThread(NicEngine& nic);
  ~ServiceThread();
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  /// Wakes it if it would sleep beyond `deadline`. Any thread.
  void see_to(Nanoseconds deadline);

  /// Has it look at the NIC's descriptors anew. Any thread.
  void wake();

  /// In the child after fork, where the thread does not exist: lets go of it.
  void become_child();

 private:
  void run();
  void sleep_on_packets();

  NicEngine& nic_;
  Descriptor wake_;
  std::atomic<bool> stop_{false};
  std::atomic<Nanoseconds> sleeps_until_;
  std::thread thread_;
};

}  // namespace plugfest::roce
