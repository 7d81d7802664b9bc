// The engine of a NIC.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/engine/counter_publisher.h"
#include "fabric/roce/engine/fork_guard.h"
#include "fabric/roce/engine/receive_path.h"
#include "fabric/roce/engine/service_thread.h"
#include "fabric/roce/memory/memory.h"
#include "fabric/roce/nic.h"
#include "fabric/roce/port/control_files.h"
#include "fabric/roce/port/packet_batch.h"
#include "fabric/roce/port/port_set.h"
#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/roce/qp/queue_pair_table.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Owns the parts of one NIC and makes them work in rounds: receive packets, send what is due, run timers.
class NicEngine final : public NicOperations {
 public:
  /// Errors: as Nic.
  explicit NicEngine(NicSettings settings);
  ~NicEngine();
  NicEngine(const NicEngine&) = delete;
  NicEngine& operator=(const NicEngine&) = delete;

  /// The parts that queue pairs and completion queues use.
  NicContext context();

  // --- without the lock; any thread ---

  bool in_child() const { return lock_.in_child(); }
  void poll() override;
  Counters counters();
  void set_addresses(std::vector<Address> in_gid_order);
  void set_mtu(int mtu_bytes);

  // --- with the lock ---

  void open() override;

  // --- for the service thread, without the lock ---

  /// Lists the descriptors that become readable when there is something to receive, and those of blocked send sockets.
  /// False if another thread held the lock for long.
  bool list_descriptors(std::vector<int>& readable, std::vector<int>& writable);
  enum class Served {
    kNothing,  ///< no packets had come
    kPackets,
    kBusy,  ///< another thread held the lock for long
  };
  /// As poll(), but does not count as a call of the program.
  Served serve();
  /// Writes the device's counter files and the capture file if that is due.
  void publish_if_due();
  bool busy() { return lock_.held(); }
  std::uint64_t calls() const { return lock_.calls(); }
  /// When the first timer, delayed acknowledgement or publication is due.
  Nanoseconds next_deadline() const { return std::min(scheduler_.next_deadline(), publisher_.deadline()); }

  // --- for ForkGuard ---

  /// Sends delayed packets and publishes the counters when the process exits, which may happen without the destructor.
  void on_exit();

  /// Closes what a child process after fork shares with its parent.
  void on_fork_in_child();

 private:
  /// Receives packets and does what is due. True if packets came.
  bool progress();
  void run_timers(Nanoseconds now);
  /// Writes the capture file and counts the packets that the kernel dropped.
  void collect();
  /// Sends delayed packets and publishes the counters.
  void finish();

  NicLock lock_;
  Scheduler scheduler_;
  CounterPublisher publisher_;
  PortSet ports_;
  QueuePairTable queue_pairs_;
  ReceivePath receive_path_;
  TransmitPath transmit_path_;
  PacketBatch batch_;
  ControlFiles control_files_;
  MemoryTable memory_;
  ForkGuard fork_guard_;
  std::unique_ptr<ServiceThread> service_;  ///< last: it uses all of the above
};

}  // namespace plugfest::roce
