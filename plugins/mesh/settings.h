// What the user sets through the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mesh {

struct Settings {
  /// NCCL_MESH_HCA: names of the devices to use, comma separated; a name also stands for all that begin with it. A
  /// leading ^ turns the list into those to leave out. Empty: all.
  std::vector<std::string> devices;
  bool leave_out = false;

  /// NCCL_MESH_GID_INDEX: the one GID to use of each port. Unset: all RoCE v2 GIDs.
  std::optional<int> gid_index;

  /// NCCL_MESH_TIMEOUT: a packet counts as lost after 4.096 us * 2^timeout without an answer. 1 to 31; 16 is 268 ms.
  int timeout = 16;

  /// NCCL_MESH_RETRY_CNT: times that a lost packet is sent again before the connection fails. 0 to 7.
  int retry_count = 7;

  /// NCCL_MESH_TC: traffic class (DSCP and ECN) of the packets where NCCL asks for none. 0 to 255.
  int traffic_class = 0;

  /// Whether a device of this name is to be used.
  bool admits(std::string_view device) const;
};

/// Reads them. A value that is none is named in a WARN line and the default is used. `lookup`: as getenv.
Settings read_settings(const std::function<const char*(const char*)>& lookup);

}  // namespace mesh
