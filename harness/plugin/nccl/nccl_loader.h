// Loads a plugin with NCCL's own loader: NCCL finds it, chooses its version, initialises and finalizes it.
#pragma once

#include <string>
#include <string_view>

#include "harness/abi/base.h"

namespace plugfest::plugin {

/// The one release whose internal functions are known: 2.28.9.
inline constexpr int kNcclOfLoader = 22809;

/// The newest version of the net interface that it knows.
inline constexpr int kNewestNetOfNccl = 11;

/// What NCCL did with a plugin.
struct NcclLoad {
  /// NCCL's own version: "2.28.9".
  std::string nccl;
  /// The net version that NCCL took from the plugin; 0 when it took none and fell back to IB or Socket.
  int api = 0;
  /// The name in that version's table; empty when NCCL took none.
  std::string name;
  /// Number of devices of the initialised plugin; 0 when it was not initialised.
  int devices = 0;
  /// The name of the communicator's network, which may be "IB" or "Socket"; empty for none.
  std::string network;
  /// What ncclNetInit and ncclNetFinalize returned.
  abi::Result init = abi::Result::kSuccess;
  abi::Result finalize = abi::Result::kSuccess;
  /// NCCL's log at level INFO.
  std::string log;
};

/// Whether this is the name of a network that NCCL brings: "IB", "Socket".
bool is_own_network(std::string_view name);

/// Lets NCCL set up and tear down the network of one communicator with NCCL_NET_PLUGIN=`plugin`, without a GPU:
/// dlopen, choice of the version, init, devices, getProperties(0), finalize, dlclose.
///
/// `log`: descriptor of a readable file that gets NCCL's log, also when NCCL crashes.
///
/// Call it once per process, in a process that has not used NCCL: it sets environment variables, which NCCL reads once.
/// The plugin runs in this process, and its crash ends this process.
/// Errors: LoadError without libnccl, and for releases other than 2.28.9.
NcclLoad load_with_nccl(const std::string& plugin, int log);

}  // namespace plugfest::plugin
