// The path on which a connection is tried.
#pragma once

#include <cstddef>
#include <vector>

#include "plugins/mesh/device/device.h"
#include "plugins/mesh/device/path.h"

namespace mesh {

/// The addresses of the NICs, with the indexes of the NICs in the list.
std::vector<LocalAddress> local_addresses(const DeviceList& devices);

/// The paths to a peer, best first, of which one is current. Not thread-safe.
class PathChoice {
 public:
  /// `requested`: indexes of the NICs of the device that NCCL asked for, at least one.
  PathChoice(DeviceList devices, std::vector<std::size_t> requested);

  const DeviceList& devices() const { return devices_; }
  bool empty() const { return paths_.empty(); }
  /// The best path, until `next` is called. There must be a path.
  const Path& current() const { return paths_[current_]; }
  /// The paths that carry the connection together, at most `most`; the current one is the first.
  std::vector<Path> parallel(std::size_t most) const { return parallel_paths(paths_, current_, requested_, most); }

  /// Finds the paths to `peer`. If there is none, calls `refresh` and finds them again. Errors: Failure.
  void find(const std::vector<PeerAddress>& peer);
  /// Adds a path that `find` does not find. Its NIC is the first one of the requested device.
  void add(const Address& local, const Address& peer);
  /// Makes the next path the current one. Returns false if there is none.
  bool next();
  /// Reads the addresses of the NICs again; the paths stay as they are. Returns false if this object has read them
  /// already. Errors: Failure.
  bool refresh();

 private:
  const DeviceList devices_;
  const std::vector<std::size_t> requested_;
  std::vector<Path> paths_;
  std::size_t current_ = 0;
  bool refreshed_ = false;
};

}  // namespace mesh
