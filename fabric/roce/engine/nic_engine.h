// The inside of a NIC: what is guarded by its lock, and how packets reach queue pairs.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/engine/counter_publisher.h"
#include "fabric/roce/engine/fork_guard.h"
#include "fabric/roce/engine/receive_path.h"
#include "fabric/roce/engine/service_thread.h"
#include "fabric/roce/memory/memory.h"
#include "fabric/roce/nic.h"
#include "fabric/roce/port/control_files.h"
#include "fabric/roce/port/departures.h"
#include "fabric/roce/port/packet_batch.h"
#include "fabric/roce/port/port_set.h"
#include "fabric/roce/qp/queue_pair_table.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

class QueuePairEngine;

/// One lock guards the NIC's tables, its queue pairs and its sockets. Whoever holds it may touch registered memory;
/// whoever does not, may not. Completion queues and receive queues have locks of their own, which are taken inside it.
class NicEngine {
 public:
  /// Errors: as Nic.
  explicit NicEngine(NicSettings settings);
  ~NicEngine();
  NicEngine(const NicEngine&) = delete;
  NicEngine& operator=(const NicEngine&) = delete;

  std::mutex& mutex() { return mutex_; }

  /// Takes the lock for a program's thread that posts. Whoever has it is most often about to give it back, sooner than
  /// a thread goes to sleep and wakes: this one tries for some microseconds before it sleeps.
  std::unique_lock<std::mutex> lock_to_post();

  /// True in a child process after fork: then nothing here may be used, not even the lock.
  bool in_child() const { return in_child_.load(std::memory_order_relaxed); }

  // --- without the lock ---

  /// Receives packets and does what is due, unless another thread is at it. For threads that poll.
  void poll();
  Counters counters_now();
  void set_addresses(std::vector<Address> in_gid_order);
  void set_mtu(int mtu_bytes);

  // --- with the lock ---

  /// Opens the sockets if that has not happened yet, and gives the queue pair a number. Errors: std::system_error with
  /// ENOMEM if no number is left, and as Nic.
  std::uint32_t add(QueuePairEngine& queue_pair);
  void remove(QueuePairEngine& queue_pair);

  MemoryTable& memory() { return memory_; }
  Counters& counters() { return counters_; }
  PacketBatch& batch() { return batch_; }
  PortSet& ports() { return ports_; }

  Scheduler& scheduler() { return scheduler_; }
  ControlFiles& control_files() { return control_files_; }

  // --- for the service thread ---

  /// Descriptors that are readable when there is something to receive; those with blocked output for writing. False if
  /// another thread had the lock for long.
  bool list_descriptors(std::vector<int>& readable, std::vector<int>& writable);
  enum class Served {
    kNothing,  ///< no packets were there
    kPackets,
    kBusy,  ///< another thread had the lock for long: it is at it
  };
  /// As poll(), and counts as no call.
  Served serve();
  void publish_if_due();  ///< brings the device's counter files up to date
  /// Whether another thread has the lock.
  bool busy();
  /// Changes when the program polls or posts, and when a poll that received is over.
  std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  /// The first timer, late acknowledgement or publication.
  Nanoseconds next_deadline() const { return std::min(scheduler_.next_deadline(), publisher_.deadline()); }

  /// At the end of the process, which may come without a destructor.
  void exiting();

  /// In the child after fork: closes what would disturb the parent.
  void become_child();

 private:
  void open();
  /// Takes the lock if it becomes free within some microseconds.
  std::unique_lock<std::mutex> try_lock_soon();
  /// Receives packets and does what is due. True if packets came.
  bool progress();
  void run_timers(Nanoseconds now);
  void collect();
  void finish();

  std::mutex mutex_;
  std::atomic<bool> in_child_{false};
  std::atomic<std::uint64_t> calls_{0};
  Scheduler scheduler_;
  CounterPublisher publisher_;
  Counters& counters_;
  PortSet ports_;
  QueuePairTable queue_pairs_;
  ReceivePath receive_path_;
  Departures departures_;
  PacketBatch batch_;
  ControlFiles control_files_;
  MemoryTable memory_;
  ForkGuard fork_guard_;
  std::unique_ptr<ServiceThread> service_;  ///< last: it uses all of the above
};

}  // namespace plugfest::roce
