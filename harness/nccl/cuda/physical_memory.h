// Memory of cuMemCreate and multicast objects of cuMulticastCreate: files without a name, which processes can share.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "fabric/system/file.h"
#include "harness/nccl/cuda/abi.h"
#include "harness/nccl/cuda/multicast.h"

namespace plugfest::nccl::cuda {

/// Environment variable: "1" gives the driver virtual memory management, multicast and DMA-BUFs, and lets devices
/// access each other's memory. NCCL then takes other transports, so it is not the default.
inline constexpr const char* kVirtualMemoryVariable = "PLUGFEST_NCCL_VIRTUAL_MEMORY";

/// Environment variable: "1" puts the devices of all hosts into one NVLink domain, whose memory processes share by
/// fabric handles. Needs virtual memory.
inline constexpr const char* kNvlinkDomainVariable = "PLUGFEST_NCCL_NVLINK_DOMAIN";

/// Whether kVirtualMemoryVariable is "1". Thread safety: any thread.
bool has_virtual_memory();
/// Whether kNvlinkDomainVariable is "1" too. Thread safety: any thread.
bool has_nvlink_domain();

/// Sizes, offsets and addresses of virtual memory are multiples of it, as on NVIDIA's devices.
inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

/// A file without a name for memory; its bytes are zero and take no memory until they are used. No descriptor, with
/// errno set, if it cannot be made. Raises the process's limit of descriptors, because a GPU's driver needs none.
Descriptor memory_file(std::size_t bytes);

/// A descriptor of the same file with a position of its own, where a DMA-BUF begins. -1 with errno if it cannot be
/// opened.
int reopened(int file, off_t position);

/// A file that a process has open. Processes of one user find each other's files in /proc, including on other hosts of
/// the fabric.
struct FileOfProcess {
  pid_t process;
  int descriptor;
  dev_t device;  ///< with `number`: which file the descriptor must be
  ino_t number;

  /// The file `file`, which this process has open.
  static FileOfProcess of(int file);
  /// Opens the file; no descriptor if the process has closed it or ended.
  Descriptor open() const;
};

struct Physical {
  ~Physical();

  unsigned long long handle = 0;
  std::size_t bytes = 0;
  AllocationProperties properties = {};
  Descriptor file;
  std::unique_ptr<Multicast> multicast = {};  ///< null: ordinary memory
};

/// The object with this handle; null for a handle that this process does not have. Thread safety: any thread.
std::shared_ptr<Physical> physical_of(unsigned long long handle);

/// Gives `memory`, which may have been released while it was mapped, one more reference.
void retain(const std::shared_ptr<Physical>& memory);

}  // namespace plugfest::nccl::cuda
