// Settings from environment variables.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mesh {

struct Settings {
  /// NCCL_MESH_HCA: comma-separated prefixes of the names of the devices to use. With a leading ^ the list names the
  /// devices to exclude. Empty: all devices.
  std::vector<std::string> devices;
  bool exclude = false;

  /// NCCL_MESH_GID_INDEX: the only GID of each port to use, 0 to 255. Unset: all RoCE v2 GIDs.
  std::optional<int> gid_index;

  /// NCCL_MESH_TIMEOUT: a packet counts as lost after 4.096 us * 2^timeout without an acknowledgement. 1 to 31; 16 is
  /// 268 ms.
  int timeout = 16;

  /// NCCL_MESH_RETRY_CNT: retransmissions of a lost packet before the connection fails. 0 to 7.
  int retry_count = 7;

  /// NCCL_MESH_TC: traffic class (DSCP and ECN) of the packets if NCCL sets none. 0 to 255.
  int traffic_class = 0;

  /// NCCL_MESH_LINKS: maximum number of parallel links between two hosts that carry one connection. 1 to 4.
  int links = 4;

  /// NCCL_MESH_QPS_PER_LINK: queue pairs of a connection on each link; a connection has at most 4. 1 to 4.
  int queue_pairs = 1;

  /// NCCL_MESH_EAGER: maximum size of a message that is sent before its receive is announced. 0 to 4096; 0: none.
  int eager_bytes = 4096;

  /// NCCL_MESH_CUDA: 0: host memory only. 1: GPU memory too, registered by its address (nvidia_peermem). Unset: GPU
  /// memory if all NICs and GPUs support DMA-BUF.
  std::optional<int> cuda;

  /// NCCL_MESH_RELAY_SECRET: the same text, of at least 16 characters, on all hosts. If set, this process relays
  /// traffic between hosts that share no subnet, and uses such relays itself. Unset: no relay.
  std::string relay_secret;

  /// NCCL_MESH_RELAY_PORT: UDP port on which relays find each other, the same on all hosts. 1024 to 65535.
  int relay_port = 14791;

  /// NCCL_MESH_RELAY_WAIT: seconds in which connect looks for relays before it fails. 0 to 600.
  int relay_wait_s = 10;

  /// Whether to use the device of this name.
  bool admits(std::string_view device) const;
};

/// Parses the value `text` of the environment variable `name`. nullopt if `text` is null or empty. Errors: Failure
/// (kInvalidArgument) "NAME=TEXT: expected EXPECTED from LEAST to MOST".
std::optional<int> number_in(const char* text, const char* name, int least, int most,
                             const char* expected = "a number");

/// Reads the settings. `lookup`: a function such as getenv. Errors: Failure (kInvalidArgument) for an invalid value.
Settings read_settings(const std::function<const char*(const char*)>& lookup);

}  // namespace mesh
