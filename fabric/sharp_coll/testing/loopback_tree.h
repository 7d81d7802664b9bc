// An aggregation manager and one aggregation node in a thread, for tests of communicators.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace plugfest::sharp_coll::testing {

/// Serves one group at a time.
class LoopbackTree {
 public:
  struct Options {
    int refuse_with = 0;         ///< a code: every group is refused with it
    bool sat_is_locked = false;  ///< groups of mode sat are refused with ELOCK_FAILED
    double loss = 0;             ///< probability that a packet is lost, in both directions
    std::uint32_t fragment_window = 16;
    std::string address = "127.0.0.1";  ///< an address of this host
  };

  explicit LoopbackTree(Options options);
  LoopbackTree() : LoopbackTree(Options()) {}
  ~LoopbackTree();
  LoopbackTree(const LoopbackTree&) = delete;
  LoopbackTree& operator=(const LoopbackTree&) = delete;

  /// ADDRESS:PORT of the manager.
  std::string manager() const;

  /// Closes all connections, as happens when a manager dies.
  void die();
  /// Waits until all ranks that joined have left. Returns how many left with a message.
  int await_leaves();

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace plugfest::sharp_coll::testing
