// Registers and deregisters host memory.
#include "plugins/mesh/transfer/registrations.h"

#include <algorithm>
#include <string>

#include "plugins/mesh/device/gpu.h"
#include "plugins/mesh/failure.h"

namespace mesh {

Registrations::Registrations(std::vector<std::shared_ptr<const Device>> devices, int access)
    : access_(access), devices_(std::move(devices)) {}

Registrations::~Registrations() { close(); }

Registration* Registrations::add(const MemoryToRegister& memory) {
  auto registration = std::make_unique<Registration>();
  registration->begin = reinterpret_cast<std::uintptr_t>(memory.data);
  registration->size = memory.bytes;
  registration->of_gpu = memory.of_gpu;
  // A flush reads memory of a GPU.
  const bool read = memory.of_gpu && (access_ & IBV_ACCESS_REMOTE_WRITE) != 0;
  const int access = access_ | (read ? IBV_ACCESS_REMOTE_READ : 0);
  {
    const std::lock_guard lock(mutex_);
    registration->devices = devices_;
  }
  const auto& devices = registration->devices;
  if (devices.empty()) throw Failure(Result::kInternalError, "regMr: the connection is closed");
  for (std::size_t lane = 0; lane < devices.size() && memory.bytes > 0; ++lane) {
    const auto same =
        static_cast<std::size_t>(std::find(devices.begin(), devices.end(), devices[lane]) - devices.begin());
    if (same == lane) {
      const Device& device = *devices[lane];
      registration->ranges.push_back(device.regions().add(registration->begin, memory.bytes, access, [&] {
        if (memory.dma_buf < 0) return ibv_reg_mr(device.protection_domain(), memory.data, memory.bytes, access);
        const Pages pages = pages_of(registration->begin, memory.bytes);
        return ibv_reg_dmabuf_mr(device.protection_domain(), memory.dma_buf_offset, pages.bytes, pages.begin,
                                 memory.dma_buf, access);
      }));
      if (!registration->ranges.back()) {
        throw system_failure("register " + std::to_string(memory.bytes) + " bytes of " + (memory.of_gpu ? "GPU " : "") +
                             "memory with " + device.name() +
                             (memory.of_gpu ? " (NCCL_MESH_CUDA=0 on all ranks copies through host memory)"
                                            : " (is it mapped, is `ulimit -l` high enough?)"));
      }
      registration->local_keys[lane] = registration->ranges.back()->region().lkey;
      registration->remote_keys[lane] = registration->ranges.back()->region().rkey;
    } else {
      registration->local_keys[lane] = registration->local_keys[same];
      registration->remote_keys[lane] = registration->remote_keys[same];
    }
  }
  const std::lock_guard lock(mutex_);
  registrations_.insert(registration.get());
  return registration.release();
}

bool Registrations::is_shared(const Registration* registration) {
  const std::lock_guard lock(mutex_);
  return registrations_.contains(registration) && std::any_of(registration->ranges.begin(), registration->ranges.end(),
                                                              [](const auto& each) { return each->is_shared(); });
}

void Registrations::remove(Registration* registration) {
  {
    const std::lock_guard lock(mutex_);
    if (registrations_.erase(registration) == 0) {
      throw Failure(Result::kInvalidArgument, "deregMr: the handle was not returned by regMr of this connection");
    }
  }
  delete registration;
}

bool Registrations::use_remotely(std::uint64_t address, std::uint64_t bytes, std::uint32_t key,
                                 const std::function<void()>& use) {
  const std::lock_guard lock(mutex_);
  const bool may = (access_ & IBV_ACCESS_REMOTE_WRITE) != 0 &&
                   std::any_of(registrations_.begin(), registrations_.end(), [&](const Registration* each) {
                     return each->size > 0 && each->remote_keys.front() == key &&
                            each->covers(reinterpret_cast<const void*>(address), bytes);
                   });
  if (may) use();
  return may;
}

void Registrations::close() {
  const std::lock_guard lock(mutex_);
  for (const Registration* each : registrations_) delete each;
  registrations_.clear();
  devices_.clear();
}

}  // namespace mesh
