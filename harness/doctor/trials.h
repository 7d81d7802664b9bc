// Trials of properties that no file shows, each in a child process with a deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fabric/netns/namespace_restriction.h"
#include "harness/wire/fields.h"

namespace plugfest::doctor {

struct Restriction : netns::NamespaceRestriction {
  PLUGFEST_FIELDS(cause, command, alternative)
};

struct SandboxTrial {
  /// The restriction that prevented it; std::nullopt if the trial created two hosts and a link.
  std::optional<Restriction> restriction;
  /// The sandbox has a PID namespace, so that its processes end with it.
  bool own_pid_namespace = true;
  /// Whether the kernel accepted a netem queue; std::nullopt if the trial did not try it.
  std::optional<bool> netem = {};
  int milliseconds = 0;
  PLUGFEST_FIELDS(restriction, own_pid_namespace, netem)
};

struct KvmTrial {
  enum class State : std::uint8_t { kRuns, kAbsent, kNoAccess, kFails };
  State state = State::kAbsent;
  std::string reason = {};  ///< reason of kFails
  PLUGFEST_FIELDS(state, reason)
};

struct NcclTrial {
  std::string path;     ///< empty: no libnccl.so.2 was found
  int version = 0;      ///< 22809 for 2.28.9; 0 if it does not load
  std::string problem;  ///< why it does not load
  PLUGFEST_FIELDS(path, version, problem)
};

struct CudaTrial {
  bool library = false;  ///< libcuda.so.1 was found
  int version = 0;       ///< newest CUDA version that the driver supports, 12040 for 12.4; 0 if unknown
  int devices = 0;
  std::string problem;  ///< why no device can be used
  PLUGFEST_FIELDS(library, version, devices, problem)
};

/// Each trial removes all that it creates, needs no privilege, and takes a few seconds at most.
struct Trials {
  /// Creates two hosts and a link. `netem`: also adds a netem queue; the kernel may load the module for it.
  std::function<SandboxTrial(bool netem)> sandbox;
  /// Places two hosts on addresses 127.x.y.z. Returns the reason of a failure, or "".
  std::function<std::string()> loopback;
  std::function<KvmTrial()> kvm;
  std::function<NcclTrial()> nccl;
  std::function<CudaTrial()> cuda;
  /// One bit per priority with priority flow control; std::nullopt if the driver does not report it.
  std::function<std::optional<unsigned>(const std::string& interface)> paused_priorities;

  /// The trials of this machine. Call it while the process has one thread.
  static Trials real();
};

/// Runs `work` in a child process and returns its result. Returns std::nullopt if `work` crashes, throws, or takes
/// longer than `seconds`. After that time it kills the process group of the child.
std::optional<std::string> run_in_child(double seconds, const std::function<std::string()>& work);

}  // namespace plugfest::doctor
