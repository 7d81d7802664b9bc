// References to the parts of a NIC.
#pragma once

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/memory/memory.h"
#include "fabric/roce/memory/nic_lock.h"
#include "fabric/roce/port/control_files.h"
#include "fabric/roce/port/packet_batch.h"
#include "fabric/roce/port/port_set.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/roce/qp/work_queues.h"

namespace plugfest::roce {

/// Operations of the NIC as a whole, which the engine implements. None is called per packet.
class NicOperations {
 public:
  /// Opens the sockets and starts the service thread, unless that is done. With the NIC's lock. Errors:
  /// std::system_error, std::runtime_error.
  virtual void open() = 0;

  /// Receives packets and runs due work, unless another thread holds the NIC's lock. Without the lock.
  virtual void poll() = 0;

 protected:
  ~NicOperations() = default;
};

/// The parts of a NIC that requesters and responders use. Guarded by the NIC's lock.
struct DataPath {
  MemoryTable& memory;
  Counters& counters;
  PacketBatch& batch;
  PortSet& ports;
  Scheduler& scheduler;
  ExtendedReceivesTable& extended_receives;
};

/// The parts of a NIC that queue pairs and completion queues use. They are references: copies are cheap and valid as
/// long as the NIC exists.
struct NicContext : DataPath {
  NicLock& lock;
  NicOperations& operations;
  QueuePairTable& queue_pairs;
  ControlFiles& control_files;
};

}  // namespace plugfest::roce
