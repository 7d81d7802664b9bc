// The memory that comms may send from and receive to, and flushes of GPU memory.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "plugins/mesh/device/device.h"
#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/transfer/lane.h"
#include "plugins/mesh/transfer/request.h"

namespace mesh {

/// Memory registered on one comm; NCCL's mhandle points to it.
struct Registration {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  bool of_gpu = false;
  /// The keys for each lane; lanes of one NIC have the same. 0 for memory of 0 bytes.
  std::array<std::uint32_t, kMaxLanes> local_keys = {}, remote_keys = {};
  std::vector<std::shared_ptr<const Device>> devices;       ///< the devices of the lanes
  std::vector<std::unique_ptr<RegionCache::Range>> ranges;  ///< one for each NIC

  bool covers(const void* data, std::size_t bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    return first >= begin && bytes <= size && first - begin <= size - bytes;
  }
};

struct MemoryToRegister {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool of_gpu = false;
  int dma_buf = -1;  ///< DMA-BUF of the memory's pages, if it is not negative
  std::uint64_t dma_buf_offset = 0;
};

/// Registers the memory with a NIC, or shares a region that covers it. `access`: flags of `ibv_reg_mr`. Errors:
/// Failure.
std::unique_ptr<RegionCache::Range> register_range(const Device& device, const MemoryToRegister& memory, int access);

/// The registrations of one comm. Thread-safe; no member waits for transfers.
class Registrations {
 public:
  /// `devices`: one for each lane. `access`: flags of `ibv_reg_mr`.
  Registrations(std::vector<std::shared_ptr<const Device>> devices, int access);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// Shares the regions of other comms of the process that cover the memory. Errors: Failure.
  Registration* add(const MemoryToRegister& memory);
  /// Whether the registration belongs to this comm, and the NIC may access its memory after `remove`, because others
  /// share a region.
  bool is_shared(const Registration* registration);
  /// After the call the NIC does not access the memory for this comm, even if transfers are outstanding, unless the
  /// memory is shared. Errors: Failure for a registration of another comm.
  void remove(Registration* registration);
  /// Calls `use` if `bytes` at `address` are registered with this local key, and returns whether they are. The memory
  /// stays registered during the call.
  bool use_locally(std::uint64_t address, std::uint64_t bytes, std::uint32_t key, const std::function<void()>& use);
  /// The same for memory that the peer may write, and its remote key.
  bool use_remotely(std::uint64_t address, std::uint64_t bytes, std::uint32_t key, const std::function<void()>& use);
  /// Removes all registrations and releases the devices. Later calls of `add` fail.
  void close();

 private:
  using Keys = std::array<std::uint32_t, kMaxLanes>;
  bool use_with(Keys Registration::*keys, std::uint64_t address, std::uint64_t bytes, std::uint32_t key,
                const std::function<void()>& use);

  const int access_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Device>> devices_;
  std::unordered_set<const Registration*> registrations_;
};

/// The flushes of a comm, which make data that NICs wrote to GPU memory visible to the GPU. They read through queue
/// pairs that are connected to themselves, one for each NIC. A read is answered after the NIC's earlier writes have
/// reached the memory. Not thread-safe, except for `prepare`.
class Flushes {
 public:
  /// Maximum number of outstanding flushes.
  static constexpr std::size_t kMax = 32;

  Flushes();
  ~Flushes();

  /// Makes the queue pairs, once. Call it before the comm has a handle of GPU memory; several threads may call it.
  /// Errors: Failure, for example if relays carry the connection.
  void prepare(const std::vector<Lane>& lanes);
  void close();

  bool full() const { return free_.empty(); }
  /// Makes each NIC read one byte of the memory. Returns the index of the flush. Precondition: not full. Errors:
  /// Failure.
  std::size_t start(std::uint64_t address, const Registration& memory);
  std::uint16_t generation(std::size_t index) const { return flushes_[index].generation; }
  bool is_active(std::size_t index, std::uint16_t generation) const {
    return index < kMax && flushes_[index].active && flushes_[index].generation == generation;
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
    std::uint32_t reads = 0;  ///< number of reads that are not answered
  };

  std::mutex mutex_;  ///< protects the creation of `readers_`
  /// One for each lane; null if an earlier lane has the same NIC.
  std::vector<std::unique_ptr<Reader>> readers_;
  std::array<Flush, kMax> flushes_;
  FreeIndexes<kMax> free_;
};

}  // namespace mesh
