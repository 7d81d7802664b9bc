// RoCE packets of one host, as Wireshark reads them.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "fabric/netns/fabric.h"

namespace plugfest::netns {

/// Sees every packet to UDP port 4791 that a host or switch sends or receives, one by one: for as long as it lives, the
/// node's interfaces and those at the other ends of its links do not cut packets in hardware.
class PacketCapture {
 public:
  /// Errors: std::runtime_error.
  PacketCapture(Fabric& fabric, const std::string& node);
  ~PacketCapture();
  PacketCapture(const PacketCapture&) = delete;
  PacketCapture& operator=(const PacketCapture&) = delete;

  struct Count {
    std::size_t written = 0;
    std::size_t dropped = 0;  ///< by the kernel, because the file was written too slowly
  };
  /// Writes them to a file descriptor in the pcapng format, with the interface of each, until `stop`, or until the
  /// reader of a pipe is gone. Errors: std::runtime_error "cannot write: No space left on device".
  Count write(int fd, const std::atomic<bool>& stop);

 private:
  struct Seen {
    std::string node;
    std::string interface;
  };
  void set_segmentation(bool on);

  Fabric& fabric_;
  std::vector<Seen> ends_;  ///< that are to send packets one by one
  int socket_ = -1;
  std::vector<std::pair<int, std::string>> interfaces_;  ///< the node's, by the kernel's number
};

}  // namespace plugfest::netns
