// A collComm of NCCL: a communicator of libsharp_coll with its memory and requests.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "plugins/sharp/ring.h"

namespace sharp {

/// Whether SHARP reduces elements of `type` with `op`, numbers of abi::DataType and abi::ReduceOp. All values are
/// valid. The answer is the same at all times, unless the switches lack a type: then it changes at the first connect,
/// after which NCCL asks.
bool is_supported(int type, int op);

/// Registered memory; NCCL's mhandle points to it.
struct Memory {
  void* handle = nullptr;  ///< the handle of libsharp_coll
  sharp_data_memory_type type = SHARP_MEM_TYPE_HOST;
};

/// Memory that a collective reads or writes.
struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  const Memory* memory = nullptr;  ///< may be null if the collective does not use the buffer
};

/// Bytes of the concatenation of the blocks of all ranks.
struct Window {
  std::size_t block_bytes = 0;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

class Collective;

/// A collective in progress; NCCL's request points to it.
struct Request {
  Collective* owner = nullptr;
  void* handle = nullptr;  ///< the handle of libsharp_coll; null: this place is free
  std::size_t bytes = 0;
};

/// Threads: one thread calls collectives and test. Meanwhile other threads may register and deregister memory.
class Collective {
 public:
  /// Requests in flight: NCCL has 8 groups of channels with 8 steps each.
  static constexpr std::size_t kRequests = 64;

  /// Creates the communicator together with the other ranks of the ring, and closes the ring. `device`: the device, in
  /// the form of sharp_coll_config. Errors: Failure; if one rank fails, all ranks fail.
  Collective(const std::string& device, std::unique_ptr<Ring> ring);
  /// Does not wait for other ranks. Requests in progress end, and memory is deregistered.
  ~Collective();
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  /// `dma_buf`: the descriptor of the memory, or null. Errors: Failure.
  Memory* add_memory(void* data, std::size_t bytes, sharp_data_memory_type type, const sharp_coll_reg_params* dma_buf);
  /// The memory may have been unmapped. Errors: Failure.
  void remove_memory(void* memory);

  /// Post a collective. Return null if kRequests are in flight. Errors: Failure.
  Request* allreduce(const Buffer& send, const Buffer& receive, std::size_t count, int type, int op);
  /// `send.data`: the first byte of the own block inside the window. `receive`: the window.
  Request* allgather(const Buffer& send, const Buffer& receive, const Window& window);
  /// `send`: the window. `receive.data`: the first byte of the own block inside the window.
  Request* reduce_scatter(const Buffer& send, const Buffer& receive, const Window& window, int type, int op);

  /// Makes progress. Returns whether the request is complete. Errors: Failure. A complete or failed request frees its
  /// place.
  bool test(Request& request);

 private:
  struct Finalize {
    void operator()(sharp_coll_context* context) const { sharp_coll_finalize(context); }
  };
  struct Destroy {
    void operator()(sharp_coll_comm* comm) const { sharp_coll_comm_destroy(comm); }
  };

  void create(const std::string& device);
  void check(int code, const char* function) const;
  void learn_limits() const;
  template <typename Post>
  Request* post(std::size_t bytes, const char* function, const Post& post);

  std::unique_ptr<Ring> ring_;  ///< closed; libsharp_coll may keep the pointer
  std::unique_ptr<sharp_coll_context, Finalize> context_;
  std::unique_ptr<sharp_coll_comm, Destroy> comm_;
  std::array<Request, kRequests> requests_;
  std::mutex mutex_;  ///< protects memory_
  std::unordered_map<const void*, std::unique_ptr<Memory>> memory_;
};

}  // namespace sharp
