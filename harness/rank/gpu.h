// The memory of a GPU, through the CUDA driver: NVIDIA's libcuda.so.1 or the stand-in of --emulate-gpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace plugfest::rank {

/// GPU 0 of this process. All functions but `context` run on thread `memory`. Errors: std::runtime_error with the
/// driver's function and its code.
class Gpu {
 public:
  /// Opens the driver at the first call, as NCCL does before it loads a plugin. Errors: std::runtime_error.
  static Gpu& open();
  /// The GPU whose memory contains `address`; null for all other memory.
  static Gpu* owner(std::uint64_t address);

  /// "NVIDIA H100 80GB HBM3".
  const std::string& name() const { return name_; }
  /// Makes the GPU's primary context current in the calling thread. Thread-safe.
  void enter() const;
  /// The context of the calling thread; 0: none. Thread-safe.
  std::uint64_t context() const;

  /// The address of `size` zeroed bytes.
  std::uint64_t allocate(std::size_t size);
  void free(std::uint64_t address);
  void read(void* to, std::uint64_t from, std::size_t size) const;
  void write(std::uint64_t to, const void* from, std::size_t size) const;

 private:
  struct Driver;

  Gpu();

  const Driver& driver_;
  std::string name_;
  void* primary_context_ = nullptr;
  /// Sizes of the allocations by their addresses.
  std::map<std::uint64_t, std::size_t> allocations_;
};

}  // namespace plugfest::rank
