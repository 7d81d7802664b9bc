// The process of a rank as seen by the kernel.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "fabric/system/file.h"
#include "harness/control/rank.h"

namespace plugfest::conformance {

/// The protocols whose kernels read flags in received data.
struct FlagProtocols {
  bool ll = true, ll128 = true;
};
/// Those that the rank's NCCL_PROTO, which the plugin may have set in init, allows for at least one collective. Errors:
/// `NotApplicable` if it excludes both.
FlagProtocols flag_protocols(control::Rank rank);

/// Calls init, and returns the context. Errors: `NotApplicable` if init fails, which other rules report.
std::uint64_t context_of_init(control::Rank& rank, const control::InitOptions& options = {});

/// Descriptors above 2 that programs started by the process inherit: "7 (socket:[123])".
std::vector<std::string> inherited_descriptors(pid_t process);
/// The signals with a handler: bit 0 is signal 1.
std::uint64_t caught_signals(pid_t process);

struct ThreadFacts {
  pid_t id = 0;
  std::string name;
  /// The blocked signals: bit 0 is signal 1.
  std::uint64_t blocked = 0;
  /// Whether the thread uses or waits for a processor.
  bool runs = false;
  /// Processor time used, in steps of 10 ms.
  double cpu_seconds = 0;
};
std::vector<ThreadFacts> threads_of(pid_t process);

/// Calls `action` on a temporary thread in the network namespace of `process`. Errors: whatever `action` throws;
/// std::runtime_error when the namespace cannot be entered.
void in_network_of(pid_t process, const std::function<void()>& action);

/// Whether a TCP connection on the host of a process has unacknowledged data in transit; `or_waits`: or data for which
/// the peer has no space yet.
bool tcp_sends(pid_t process, bool or_waits);

/// Watches the packets that leave the host of a process, until destruction.
class PacketWatch {
 public:
  /// Errors: `Skipped` if the packets of that host cannot be seen; std::runtime_error.
  explicit PacketWatch(pid_t process);

  /// The traffic classes of the RoCEv2 packets since the last call, each once.
  std::set<int> roce_classes();

 private:
  static std::set<int> classes_in(int watch);

  Descriptor all_;
  /// Sees only packets with a traffic class. The traffic of other rules on the host can overflow the buffer of all_.
  Descriptor classified_;
};

/// Limits the buffers of new TCP sockets on the host of a process to 16 KiB for sending and 3 KiB for receiving, until
/// destruction.
class SmallSocketBuffers {
 public:
  /// Errors: std::runtime_error.
  explicit SmallSocketBuffers(pid_t process);
  ~SmallSocketBuffers();
  SmallSocketBuffers(const SmallSocketBuffers&) = delete;
  SmallSocketBuffers& operator=(const SmallSocketBuffers&) = delete;

 private:
  void set(const std::vector<std::string>& limits);
  pid_t process_;
  std::vector<std::string> before_;
};

/// Limits the descriptors of the process to their current number, until destruction.
class NoMoreDescriptors {
 public:
  /// Errors: `Skipped` if the limit cannot be changed.
  explicit NoMoreDescriptors(control::Rank rank);
  ~NoMoreDescriptors();
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  pid_t process_;
  std::uint64_t before_;
};

}  // namespace plugfest::conformance
