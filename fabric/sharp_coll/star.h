// Out-of-band collectives of programs on one machine: rank 0 has a stream socket to each other rank.
#pragma once

#include <string>
#include <vector>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "fabric/system/file.h"

namespace plugfest::sharp_coll {

/// Connects ranks through a Unix socket, which works across network namespaces that share files.
/// Supports root 0 only, as libsharp_coll needs.
class Star {
 public:
  /// Waits until all ranks have connected to `path`. Errors: std::runtime_error.
  Star(int rank, int ranks, const std::string& path);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// The functions for sharp_coll_init_spec, with this object as oob_ctx.
  static sharp_coll_out_of_band_colls collectives();

  int broadcast(void* data, int bytes);
  int gather(const void* own, void* all, int bytes);
  int barrier();

 private:
  int rank_;
  int ranks_;
  std::vector<Descriptor> peers_;  // rank 0: the sockets to rank 1, 2, …; others: the socket to rank 0
};

}  // namespace plugfest::sharp_coll
