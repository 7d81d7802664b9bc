// The ring of the ranks that connect to each other: collectives that need no SHARP.
//
// libsharp_coll asks its caller for a broadcast, a gather and a barrier while it creates a communicator. NCCL gives a
// CollNet plugin nothing but the handles of all ranks' listeners. So each rank connects to the listener of the next
// rank, over the net part of this plugin.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "plugins/mesh/log.h"
#include "plugins/mesh/net.h"

namespace sharp {

namespace abi = plugfest::abi;
using abi::Result;
using mesh::Failure;

/// The functions wait for other ranks, at most until the time limit. When a rank ends or closes its ring, the neighbors
/// that still need it fail and close their rings, and so on: no rank waits for one that has failed. A rank may close
/// its ring when its last function has returned, although other ranks still wait in theirs. Not thread-safe.
class Ring {
 public:
  struct Place {
    int rank = 0;
    int ranks = 1;
  };

  /// Takes `listener`, a listen comm of the net part on `device`. `next_handle`: the handle of the next rank's
  /// listener; it is copied. `limit`: the time limit for all functions together, from now on. Errors: Failure.
  Ring(Place place, int device, void* listener, const void* next_handle, std::chrono::seconds limit,
       abi::Logger logger);
  ~Ring() { close(); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Place place() const { return place_; }

  /// Copies `bytes` bytes from rank `root` to all ranks. Errors: Failure, as for the next functions.
  void broadcast(void* data, std::size_t bytes, int root);
  /// Collects `bytes` bytes of each rank in `all`, in the order of the ranks.
  void all_gather(const void* own, void* all, std::size_t bytes);
  /// Waits until all ranks have called it. The first call on a ring must be this one: it connects the ranks.
  void barrier();

  /// The functions for libsharp_coll; the oob_ctx is a Ring. After an error, failure() says what happened.
  static sharp_coll_out_of_band_colls collectives();
  const std::optional<Failure>& failure() const { return failure_; }

  /// Closes all connections and the listener. Later calls of the collectives fail. Does not wait.
  void close();

 private:
  /// One direction: the connection to the next rank, or from the previous one.
  struct Direction {
    void* comm = nullptr;  ///< null until it is connected
    void* memory = nullptr;
    std::array<std::byte, 8192> message = {};
  };

  template <typename Body>
  int status_of(const Body& body) noexcept;
  void exchange(const void* to_next, void* from_previous, std::size_t bytes);
  void exchange_message(bool sends, bool receives);
  bool advance_send(void*& request);
  void probe_next();
  bool advance_receive(void*& request);
  bool is_done(void* request, int neighbor) const;
  void check(Result result, int neighbor) const;
  void check_time(bool waits_for_next) const;

  int next() const { return (place_.rank + 1) % place_.ranks; }
  int previous() const { return (place_.rank + place_.ranks - 1) % place_.ranks; }

  const Place place_;
  const int device_;
  const std::chrono::seconds limit_;
  const std::chrono::steady_clock::time_point deadline_;
  void* context_ = nullptr;  ///< context of the net part; its end ends an unfinished connect
  void* listener_ = nullptr;
  std::array<std::byte, abi::kHandleBytes> next_handle_;
  Direction send_, receive_;
  std::optional<Failure> failure_;
};

}  // namespace sharp
