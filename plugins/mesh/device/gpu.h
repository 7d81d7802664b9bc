// The access of NICs to GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "plugins/mesh/device/device.h"

namespace mesh {

/// The functions of the CUDA driver that NICs need. Default: GPU memory is not supported. Immutable.
class Gpu {
 public:
  enum class Access {
    kNone,
    kByAddress,  ///< ibv_reg_mr takes GPU pointers (nvidia_peermem)
    kDmaBuf,     ///< the driver exports memory as DMA-BUF, which the NIC registers
  };
  /// A function such as dlsym.
  using Symbols = std::function<void*(const char*)>;

  Gpu() = default;
  /// Chooses the access. `symbols`: the symbols of the CUDA driver; empty if the process has not loaded it. Logs at
  /// level INFO why GPU memory is not supported although the process uses CUDA.
  Gpu(const DeviceList& devices, const Settings& settings, const Symbols& symbols);

  Access access() const { return access_; }
  /// The bits of NCCL's ptrSupport.
  int pointer_support() const;

  /// A descriptor of the whole pages of this memory, which the caller closes. Precondition: kDmaBuf. Errors: Failure.
  int export_dma_buf(std::uintptr_t begin, std::size_t bytes) const;

 private:
  using ExportRange = int (*)(void* handle, unsigned long long begin, std::size_t bytes, int type,
                              unsigned long long flags);

  Access access_ = Access::kNone;
  ExportRange export_range_ = nullptr;
};

/// The symbols of libcuda.so.1 if the process has loaded it, else empty.
Gpu::Symbols cuda_driver();

/// The pages of `bytes` bytes at `begin`: their first address, and their size.
struct Pages {
  std::uintptr_t begin;
  std::size_t bytes;
};
Pages pages_of(std::uintptr_t begin, std::size_t bytes);

}  // namespace mesh
