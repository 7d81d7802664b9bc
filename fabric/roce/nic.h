// A user-space RoCEv2 NIC on one network interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/roce/counter_publisher.h"
#include "fabric/roce/counters/counters.h"
#include "fabric/roce/faults/plan.h"
#include "fabric/roce/memory/memory.h"
#include "fabric/roce/port/control_files.h"
#include "fabric/roce/port/packet_batch.h"
#include "fabric/roce/port/port_set.h"
#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/roce/receive_path.h"
#include "fabric/roce/service_thread.h"
#include "fabric/roce/wire/address.h"
#include "fabric/system/clock.h"
#include "fabric/system/process_handlers.h"

namespace plugfest::roce {

struct NicSettings {
  std::vector<Address> addresses;                  ///< in GID order, at least one
  int interface_index = 0;                         ///< scope of link-local addresses
  int mtu_bytes = 1500;                            ///< MTU of the interface
  std::uint64_t rate_mbps = 10'000;                ///< speed of the port, which limits unreliable queue pairs
  bool ecn = false;                                ///< reliable packets are ECN-capable; marks are reported
  std::string device = {};                         ///< name in fault plans, as "roce_eth0"
  std::filesystem::path device_folder = {};        ///< the device's folder in the sysfs view, or empty
  std::optional<FaultPlan> faults = std::nullopt;  ///< nullopt: from environment and device folder
};

/// A process has one NIC per interface, which the contexts of the device share. Completion queues, protection domains,
/// memory regions and queue pairs refer to it and must be destroyed before it.
///
/// A thread that polls a completion queue receives packets. If no thread has polled for 50 to 200 µs, a thread of the
/// NIC takes over, which sleeps while no packet arrives. In a child process after fork polling and posting fail,
/// destruction does nothing, and the parent is not affected.
///
/// Faults: see FaultSource (faults/plan.h). The NIC notices changes of the files within 10 ms.
///
/// A queue pair answers packets with a congestion mark (wire/wire.h) by a notification (CNP), at most one per 50 µs. A
/// queue pair that receives a CNP reduces its congestion window, even without NicSettings::ecn.
///
/// PLUGFEST_ROCE_PCAP in the environment, or the file `pcap` in the device's folder, names a file to which the NIC
/// writes its packets (capture/packet_log.h).
///
/// Thread safety: every member from any thread, except that no other member may run during destruction.
class Nic final : public NicOperations, private ServiceWork, private ProcessHandlers {
 public:
  /// Opens no socket. The first queue pair opens the sockets and starts the thread, in the network namespace of its
  /// caller. Its constructor throws std::system_error (not a local address, no socket available) or std::runtime_error
  /// (more than 254 processes use this interface). Errors: std::system_error without an address, std::runtime_error for
  /// invalid fault plans in the environment or if the file of PLUGFEST_ROCE_PCAP cannot be written.
  explicit Nic(NicSettings settings);
  ~Nic();
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  Counters counters();

  /// Sets addresses and MTU after the interface has changed. Queue pairs and address handles keep their local address.
  /// Address() in the list is an unused GID index. `order`: increases with each snapshot of the interface. Calls with
  /// an older snapshot than that of an earlier call do nothing.
  void set_addresses(std::vector<Address> in_gid_order, std::uint64_t order = 0);
  void set_mtu(int mtu_bytes, std::uint64_t order = 0);

  /// The argument of CompletionQueue, QueuePair and AddressHandle.
  NicContext context();
  /// The argument of ProtectionDomain.
  MemoryTable& memory() { return memory_; }

  /// True in a child process after fork.
  bool in_child() const { return lock_.in_child(); }

  void poll() override;

  /// Implements NicOperations::open(). Needs the NIC's lock.
  void open() override;

 private:
  bool list_descriptors(std::vector<int>& readable, std::vector<int>& writable) override;
  Served serve() override;
  void publish_if_due() override;
  bool busy() override { return lock_.held(); }
  std::uint64_t calls() const override { return lock_.calls(); }
  Nanoseconds next_deadline() const override { return std::min(scheduler_.next_deadline(), publisher_.deadline()); }

  void on_exit() override;
  void before_fork() override;
  void after_fork_in_parent() override;
  bool on_fork_in_child() override;

  /// Receives packets and runs due work. True if packets arrived.
  bool progress();
  void run_timers(Nanoseconds now);
  /// Writes the capture file and counts the packets that the kernel dropped.
  void collect();
  void finish();

  NicLock lock_;
  bool locked_for_fork_ = false;  ///< used during forks only
  Scheduler scheduler_;
  CounterPublisher publisher_;
  PortSet ports_;
  std::uint64_t interface_order_ = 0;  ///< of the newest snapshot of the interface
  QueuePairTable queue_pairs_;
  ExtendedReceivesTable extended_receives_;
  ReceivePath receive_path_;
  TransmitPath transmit_path_;
  PacketBatch batch_;
  ControlFiles control_files_;
  MemoryTable memory_;
  std::unique_ptr<ServiceThread> service_;  ///< uses all of the above
  ForkGuard fork_guard_;                    ///< last: a fork of another thread uses all of the above
};

}  // namespace plugfest::roce
