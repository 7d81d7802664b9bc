// NCCL's own loader as a witness: real NCCL code finds a plugin, picks its version, initialises and finalizes it.
#pragma once

#include <string>

#include "harness/abi/base.h"

namespace plugfest::plugin {

/// The inside of this release, 2.28.9, is known.
inline constexpr int kNcclOfLoader = 22809;

/// What NCCL did with a plugin.
struct Witness {
  /// NCCL's own version: "2.28.9".
  std::string nccl;
  /// The net version that it took from the plugin; 0 when it took none, and fell back to IB or Socket.
  int api = 0;
  /// That version's name of itself; empty when NCCL took none.
  std::string name;
  /// Devices that it has once NCCL has started it; 0 when it was not started.
  int devices = 0;
  /// The name of the network that its communicator got, which may be "IB" or "Socket"; empty for none.
  std::string network;
  /// What ncclNetInit and ncclNetFinalize returned.
  abi::Result init = abi::Result::kSuccess;
  abi::Result finalize = abi::Result::kSuccess;
  /// NCCL's log of it, level INFO.
  std::string log;
};

/// Has NCCL set up and tear down the network of one communicator with NCCL_NET_PLUGIN=`plugin`, without a GPU:
/// dlopen, version, init, devices, getProperties(0), finalize, dlclose. The plugin runs inside this process.
///
/// `log`: descriptor of a file that can be read, for NCCL's log; whoever has it too can read how far a crash let it
/// come.
///
/// Once per process, and in one that has not used NCCL before: NCCL keeps its settings, which this puts into the
/// environment. A plugin that makes NCCL crash makes this process crash.
/// Errors: LoadError when there is no libnccl, or it is not 2.28.9, whose internal functions are the ones known.
Witness load_with_nccl(const std::string& plugin, int log);

}  // namespace plugfest::plugin
