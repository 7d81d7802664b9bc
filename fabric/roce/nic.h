// A user-space RoCEv2 NIC: one interface's UDP port 4791, the queue pairs behind it, and the thread that serves them
// when the program does not poll.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/faults/plan.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

class NicEngine;

/// What the NIC needs to know about its interface.
struct NicSettings {
  std::vector<Address> addresses;                  ///< in GID order, at least one
  int interface_index = 0;                         ///< where link-local addresses are meant
  int mtu_bytes = 1500;                            ///< of the interface
  std::uint64_t rate_mbps = 10'000;                ///< speed of the port: unreliable queue pairs keep to it
  bool ecn = false;                                ///< reliable packets may be marked; marks are looked for
  std::string device = {};                         ///< "roce_eth0", as fault plans name it
  std::filesystem::path device_folder = {};        ///< of the sysfs view, where there is one
  std::optional<FaultPlan> faults = std::nullopt;  ///< nothing: as environment and device folder say
};

/// One per process and interface; contexts of the same device share it. Completion queues, protection domains, memory
/// regions and queue pairs name it and must be gone before it.
///
/// Who polls a completion queue receives packets; a thread of the NIC takes over when nobody has polled for 50 µs, and
/// sleeps when no packet comes. After fork the child's copy is dead: polling and posting fail there, destruction is
/// harmless, and the parent is not disturbed.
///
/// Faults made on purpose (faults/plan.h) come from three places, which add up: PLUGFEST_ROCE_FAULTS in the environment
/// is one plan, PLUGFEST_ROCE_FAULTS_FILE names a file of them (faults/file.h), and `faults` and `link` in the device's
/// folder are such files too. All are followed while packets go: a change is noticed within 10 ms.
///
/// A marked packet (ecn.h) is answered by a notification (CNP), of which a queue pair sends one in 50 µs; who gets one
/// has less in flight, whatever its own setting.
///
/// Packets are written to a file for Wireshark (capture/packet_log.h) if PLUGFEST_ROCE_PCAP in the environment names
/// one, or `pcap` in the device's folder does, now or later.
///
/// Thread safety: every member from any thread, except that nothing may run during destruction.
class Nic {
 public:
  /// Does not touch the network yet: the first queue pair opens the sockets and starts the thread, in the network
  /// namespace of its caller, and its constructor throws what goes wrong then: std::system_error (an address is not
  /// this host's, no socket to be had), std::runtime_error (more than 255 processes use this address). Errors:
  /// std::runtime_error if what the environment says about faults cannot be understood, or
  /// PLUGFEST_ROCE_PCAP not be written.
  explicit Nic(NicSettings settings);
  ~Nic();
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  Counters counters() const;

  /// Follows its interface. Queue pairs and address handles keep the local address that they were given. Address() in
  /// the list is an empty place of the GID table.
  void set_addresses(std::vector<Address> in_gid_order);
  void set_mtu(int mtu_bytes);

  /// For the constructors of CompletionQueue, QueuePair and AddressHandle.
  NicContext context();
  /// For the constructor of ProtectionDomain.
  MemoryTable& memory() { return context().memory; }

  /// True in a child process after fork.
  bool in_child() const;

 private:
  std::unique_ptr<NicEngine> engine_;
};

}  // namespace plugfest::roce
