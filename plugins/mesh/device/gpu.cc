#include "plugins/mesh/device/gpu.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "harness/abi/base.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

// Values of cuda.h.
constexpr int kSuccess = 0;
constexpr int kAttributeDmaBuf = 124;
constexpr int kHandleDmaBuf = 1;

// Why the GPUs of the process do not export DMA-BUFs; empty if they do.
std::string obstacle(const Gpu::Symbols& symbols) {
  const auto get_count = reinterpret_cast<int (*)(int*)>(symbols("cuDeviceGetCount"));
  const auto get_device = reinterpret_cast<int (*)(int*, int)>(symbols("cuDeviceGet"));
  const auto get_attribute = reinterpret_cast<int (*)(int*, int, int)>(symbols("cuDeviceGetAttribute"));
  if (get_count == nullptr || get_device == nullptr || get_attribute == nullptr ||
      symbols("cuMemGetHandleForAddressRange") == nullptr)
    return "the CUDA driver is older than 11.7";
  int count = 0;
  if (get_count(&count) != kSuccess || count == 0) return "the process has no GPU";
  for (int i = 0; i < count; ++i) {
    int device = 0, supported = 0;
    if (get_device(&device, i) != kSuccess || get_attribute(&supported, kAttributeDmaBuf, device) != kSuccess ||
        supported == 0)
      return "a GPU does not export DMA-BUFs";
  }
  return "";
}

}  // namespace

Gpu::Gpu(const DeviceList& devices, const Settings& settings, const Symbols& symbols) {
  // Relays copy through host memory.
  if (settings.cuda == 0 || !settings.relay_secret.empty() || devices.empty()) return;
  if (settings.cuda == 1) {
    access_ = Access::kByAddress;
    return;
  }
  if (!symbols) return;
  const auto unable = std::find_if(devices.begin(), devices.end(), [](const std::shared_ptr<const Device>& device) {
    return !device->takes_dma_buf();
  });
  const std::string why =
      unable != devices.end() ? (*unable)->name() + " does not register DMA-BUFs" : obstacle(symbols);
  if (!why.empty()) {
    MESH_INFO("GPU memory is copied through host memory: %s", why.c_str());
    return;
  }
  access_ = Access::kDmaBuf;
  export_range_ = reinterpret_cast<ExportRange>(symbols("cuMemGetHandleForAddressRange"));
}

int Gpu::pointer_support() const {
  namespace abi = plugfest::abi;
  switch (access_) {
    case Access::kByAddress:
      return abi::kPointerHost | abi::kPointerCuda;
    case Access::kDmaBuf:
      return abi::kPointerHost | abi::kPointerCuda | abi::kPointerDmaBuf;
    default:
      return abi::kPointerHost;
  }
}

int Gpu::export_dma_buf(std::uintptr_t begin, std::size_t bytes) const {
  const Pages pages = pages_of(begin, bytes);
  int descriptor = -1;
  const int error = export_range_(&descriptor, pages.begin, pages.bytes, kHandleDmaBuf, 0);
  if (error != kSuccess) {
    throw Failure(Result::kUnhandledCudaError, "the CUDA driver does not export " + std::to_string(bytes) +
                                                   " bytes of GPU memory as DMA-BUF (CUDA error " +
                                                   std::to_string(error) + "): set NCCL_MESH_CUDA=0 on all ranks");
  }
  return descriptor;
}

Gpu::Symbols cuda_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  return [handle = std::shared_ptr<void>(library, dlclose)](const char* name) { return dlsym(handle.get(), name); };
}

Pages pages_of(std::uintptr_t begin, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = begin / page * page;
  return {first, (begin + bytes - first + page - 1) / page * page};
}

}  // namespace mesh
