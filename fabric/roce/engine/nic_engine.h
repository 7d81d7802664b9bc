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
#include "fabric/roce/engine/service_thread.h"
#include "fabric/roce/memory/memory.h"
#include "fabric/roce/nic.h"
#include "fabric/roce/port/arrivals.h"
#include "fabric/roce/port/control_files.h"
#include "fabric/roce/port/departures.h"
#include "fabric/roce/port/direct_batch.h"
#include "fabric/roce/port/packet_batch.h"
#include "fabric/roce/port/port_set.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/roce/wire/icrc.h"
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
  /// Takes the lock if it can be had within some microseconds.
  std::unique_lock<std::mutex> try_lock_soon();
  bool progress();
  void receive_batch(UdpPort& port, const ReceivedBatch& batch, Nanoseconds now, std::size_t first_index = 0);
  void receive_packet(std::span<const std::byte> bytes, std::size_t index, const Arrival& arrival, Nanoseconds now);
  /// Receives what one system call gives. False if there is nothing.
  bool receive_next(UdpPort& port, Nanoseconds now);
  Landing landing_for(const ReceivedBatch& coming, std::span<const std::byte, kBthBytes> bth) const;
  /// Receives what comes next where the message that is going on has its place. Whether something came; nothing if
  /// there is no such place.
  std::optional<bool> receive_unseen(UdpPort& port, Nanoseconds now);
  /// Goes on with what direct_ holds, whose first packet is as expected.
  void take_in_place(UdpPort& port, const ReceivedBatch& batch, Nanoseconds now);
  void receive_packets(const ReceivedBatch& batch, std::size_t first_index, Nanoseconds now);
  bool icrc_is_right(std::span<const std::byte> bytes, std::size_t index, const Arrival& arrival);
  bool icrc_is_right(std::span<const std::byte> bth, std::span<const std::byte> rest,
                     std::span<const std::byte, kIcrcBytes> icrc, std::size_t index, const Arrival& arrival);
  void receive_forwarded(Nanoseconds now);
  void answer_probe(const UdpPort& port, std::span<const std::byte> packet);
  void run_timers(Nanoseconds now);
  void count_buffer_drops();
  void collect();
  void finish();

  std::mutex mutex_;
  std::atomic<bool> in_child_{false};
  std::atomic<std::uint64_t> calls_{0};
  Scheduler scheduler_;
  CounterPublisher publisher_;
  Counters& counters_;
  Arrivals arrivals_;
  Departures departures_;
  PacketBatch batch_;
  ControlFiles control_files_;
  PortSet ports_;
  MemoryTable memory_;
  IdentificationSpan identifications_;
  std::unordered_map<std::uint32_t, QueuePairEngine*> queue_pairs_;
  Nanoseconds forwarded_checked_ = 0;
  std::unique_ptr<std::byte[]> receive_buffer_;
  DirectBatch direct_;
  bool long_message_ = false;  ///< the packet received last was not the last of its message
  /// A message of which batches were received in place.
  struct GoingOn {
    std::uint32_t queue_pair_number = 0;
    bool request = false;  ///< a WRITE, not the response to a READ
    int times = 0;         ///< in a row
    Nanoseconds at = 0;    ///< the last time

    bool same_as(const GoingOn& other) const {
      return queue_pair_number == other.queue_pair_number && request == other.request;
    }
  };
  GoingOn going_on_;
  ForkGuard fork_guard_;
  std::unique_ptr<ServiceThread> service_;  ///< last: it uses all of the above
};

}  // namespace plugfest::roce
