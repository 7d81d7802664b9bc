#include "harness/rank/gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <stdexcept>

#include "harness/rank/server.h"

namespace plugfest::rank {

namespace {

std::atomic<Gpu*> opened{nullptr};

template <typename Function>
void find(Function*& function, void* library, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(fmt::format("libcuda.so.1 has no function {}", name));
}

void require(int code, const char* function) {
  if (code != 0) throw std::runtime_error(fmt::format("{} returned {}", function, code));
}

}  // namespace

// The functions by the names under which the library exports them. A CUdeviceptr is a 64-bit number (cuda.h).
struct Gpu::Driver {
  int (*init)(unsigned);
  int (*get_device)(int*, int);
  int (*get_name)(char*, int, int);
  int (*retain_context)(void**, int);
  int (*set_context)(void*);
  int (*get_context)(void**);
  int (*allocate)(unsigned long long*, std::size_t);
  int (*free)(unsigned long long);
  int (*set_bytes)(unsigned long long, unsigned char, std::size_t);
  int (*copy_to_host)(void*, unsigned long long, std::size_t);
  int (*copy_to_device)(unsigned long long, const void*, std::size_t);

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    find(init, library, "cuInit");
    find(get_device, library, "cuDeviceGet");
    find(get_name, library, "cuDeviceGetName");
    find(retain_context, library, "cuDevicePrimaryCtxRetain");
    find(set_context, library, "cuCtxSetCurrent");
    find(get_context, library, "cuCtxGetCurrent");
    find(allocate, library, "cuMemAlloc_v2");
    find(free, library, "cuMemFree_v2");
    find(set_bytes, library, "cuMemsetD8_v2");
    find(copy_to_host, library, "cuMemcpyDtoH_v2");
    find(copy_to_device, library, "cuMemcpyHtoD_v2");
  }
};

Gpu::Gpu()
    : driver_([]() -> const Driver& {
        static const Driver driver;
        return driver;
      }()) {
  int device = 0;
  std::array<char, 256> name{};
  require(driver_.init(0), "cuInit");
  require(driver_.get_device(&device, 0), "cuDeviceGet");
  require(driver_.get_name(name.data(), static_cast<int>(name.size()) - 1, device), "cuDeviceGetName");
  require(driver_.retain_context(&primary_context_, device), "cuDevicePrimaryCtxRetain");
  name_ = name.data();
}

Gpu& Gpu::open() {
  // Never destroyed: threads may use it until the process ends.
  static Gpu& gpu = *new Gpu;
  opened = &gpu;
  return gpu;
}

Gpu* Gpu::owner(std::uint64_t address) {
  Gpu* const gpu = opened;
  if (gpu == nullptr) return nullptr;
  auto after = gpu->allocations_.upper_bound(address);
  if (after == gpu->allocations_.begin()) return nullptr;
  const auto& [begin, size] = *--after;
  return address - begin < size ? gpu : nullptr;
}

void Gpu::enter() const { require(driver_.set_context(primary_context_), "cuCtxSetCurrent"); }

std::uint64_t Gpu::context() const {
  void* context = nullptr;
  require(driver_.get_context(&context), "cuCtxGetCurrent");
  return number(context);
}

std::uint64_t Gpu::allocate(std::size_t size) {
  enter();
  unsigned long long address = 0;
  require(driver_.allocate(&address, size), "cuMemAlloc");
  allocations_.emplace(address, size);
  require(driver_.set_bytes(address, 0, size), "cuMemsetD8");
  return address;
}

void Gpu::free(std::uint64_t address) {
  allocations_.erase(address);
  require(driver_.free(address), "cuMemFree");
}

void Gpu::read(void* to, std::uint64_t from, std::size_t size) const {
  require(driver_.copy_to_host(to, from, size), "cuMemcpyDtoH");
}

void Gpu::write(std::uint64_t to, const void* from, std::size_t size) const {
  require(driver_.copy_to_device(to, from, size), "cuMemcpyHtoD");
}

GpuAnswer execute(const UseGpu& request) {
  try {
    const Gpu& gpu = Gpu::open();
    if (request.enter) gpu.enter();
    return {"", gpu.name(), gpu.context()};
  } catch (const std::runtime_error& error) {
    return {error.what(), "", 0};
  }
}

}  // namespace plugfest::rank
