// Makes what NICs wrote to GPU memory visible to the GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "plugins/mesh/transfer/lane.h"
#include "plugins/mesh/transfer/registrations.h"
#include "plugins/mesh/transfer/request.h"

namespace mesh {

/// The flushes of a comm: reads through queue pairs that are connected to themselves, one for each NIC. A read is
/// answered after the NIC's earlier writes have reached the memory. Not thread-safe, except for `prepare`.
class Flushes {
 public:
  /// Maximum number of outstanding flushes.
  static constexpr std::size_t kMost = 32;

  Flushes();
  ~Flushes();

  /// Makes the queue pairs, once. Called before the comm has a handle of GPU memory; several threads may call it.
  /// Errors: Failure, also if relays carry the connection.
  void prepare(const std::vector<Lane>& lanes);
  /// Releases the queue pairs.
  void close();

  bool full() const { return free_.empty(); }
  /// Has each NIC read one byte of the memory. Returns the index of the flush. Precondition: not full. Errors: Failure.
  std::size_t start(std::uint64_t address, const Registration& memory);
  std::uint16_t generation(std::size_t index) const { return flushes_[index].generation; }
  /// Whether a flush is outstanding.
  bool is_active(std::size_t index, std::uint16_t generation) const {
    return index < kMost && flushes_[index].active && flushes_[index].generation == generation;
  }
  bool is_done(std::size_t index) const { return flushes_[index].reads == 0; }
  void release(std::size_t index);
  /// Collects answers. Errors: Failure.
  void poll();

 private:
  class Reader;
  struct Flush {
    bool active = false;
    std::uint16_t generation = 0;
    std::uint32_t reads = 0;  ///< that are not answered
  };

  std::mutex mutex_;  ///< protects the creation of `readers_`
  /// For each lane; null if an earlier one has the same NIC.
  std::vector<std::unique_ptr<Reader>> readers_;
  std::array<Flush, kMost> flushes_;
  FreeIndexes<kMost> free_;
};

}  // namespace mesh
