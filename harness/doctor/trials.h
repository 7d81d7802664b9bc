// What no file tells and has to be tried: each in a process of its own, with a deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fabric/netns/sandbox/namespace_restriction.h"

namespace plugfest::doctor {

struct SandboxTrial {
  /// What barred it; nothing if two hosts were made and joined by a link.
  std::optional<netns::NamespaceRestriction> obstacle;
  /// The sandbox has process ids of its own, so that nothing started in it outlives it.
  bool own_processes = true;
  /// The kernel took a netem queue there; nothing when it was not tried.
  std::optional<bool> netem = {};
  int milliseconds = 0;
};

struct KvmTrial {
  enum class State : std::uint8_t { kRuns, kAbsent, kNoAccess, kFails };
  State state = State::kAbsent;
  std::string reason;  ///< for kFails
};

struct NcclTrial {
  std::string path;     ///< empty: there is no libnccl.so.2
  int version = 0;      ///< 22809 for 2.28.9; 0 when it does not load
  std::string problem;  ///< why it does not load
};

struct CudaTrial {
  bool library = false;  ///< there is a libcuda.so.1
  int version = 0;       ///< of CUDA that the driver supports, 12040 for 12.4; 0 when it does not say
  int devices = 0;
  std::string problem;  ///< why there are no devices to use
};

/// Each leaves nothing behind, needs no privilege, and takes a few seconds at most.
struct Trials {
  /// `netem`: try that too. The kernel may load the module for it.
  std::function<SandboxTrial(bool netem)> sandbox;
  /// Lays out two hosts on addresses of the machine itself. What is in the way; empty if nothing is.
  std::function<std::string()> loopback;
  std::function<KvmTrial()> kvm;
  std::function<NcclTrial()> nccl;
  std::function<CudaTrial()> cuda;
  /// A bit for each priority with priority flow control; nothing where the interface's driver does not say.
  std::function<std::optional<unsigned>(const std::string& interface)> paused_priorities;

  /// On this machine. To be called while the process has one thread.
  static Trials real();
};

/// Runs `work` in a child process and returns what it returned; nothing when it crashed, or took longer than `seconds`,
/// which ends it and its process group.
std::optional<std::string> in_a_child(double seconds, const std::function<std::string()>& work);

}  // namespace plugfest::doctor
