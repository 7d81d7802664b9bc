// Captures the RoCE packets of one host in the pcapng format.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/system/file.h"

namespace plugfest::netns {

/// Captures every packet to UDP port 4791 that a host or switch sends or receives. While the object exists, UDP
/// segmentation offload is off on the interfaces at both ends of the node's links, so that each packet is one record.
class PacketCapture {
 public:
  /// Errors: std::runtime_error.
  PacketCapture(Fabric& fabric, const std::string& node);
  ~PacketCapture();
  PacketCapture(const PacketCapture&) = delete;
  PacketCapture& operator=(const PacketCapture&) = delete;

  struct Count {
    std::size_t written = 0;
    std::size_t dropped = 0;  ///< packets that the kernel dropped because writing was too slow
  };
  /// Writes packets to a file descriptor until `stop` is true or the reader of a pipe has closed it; then all packets
  /// that have arrived. Each record names its interface. Errors: std::runtime_error "cannot write: No space left on
  /// device".
  Count write(int fd, const std::atomic<bool>& stop);

 private:
  struct NodeInterface {
    std::string node;
    std::string interface;
  };
  void set_segmentation(bool on);

  Fabric& fabric_;
  std::vector<NodeInterface> ends_;  ///< both ends of the node's links
  Descriptor socket_;
  std::vector<std::pair<int, std::string>> interfaces_;  ///< the node's interfaces by kernel index
};

}  // namespace plugfest::netns
