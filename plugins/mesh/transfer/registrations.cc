// Registers and deregisters host memory.
#include "plugins/mesh/transfer/registrations.h"

#include <algorithm>
#include <string>

#include "plugins/mesh/failure.h"

namespace mesh {

Registration::~Registration() {
  for (std::size_t lane = 0; lane < regions.size(); ++lane) {
    const auto before = regions.begin() + static_cast<std::ptrdiff_t>(lane);
    if (*before != nullptr && std::find(regions.begin(), before, *before) == before) ibv_dereg_mr(*before);
  }
}

Registrations::Registrations(std::vector<std::shared_ptr<const Device>> devices, int access)
    : access_(access), devices_(std::move(devices)) {}

Registrations::~Registrations() { close(); }

Registration* Registrations::add(void* data, std::size_t bytes) {
  auto registration = std::make_unique<Registration>();
  registration->begin = reinterpret_cast<std::uintptr_t>(data);
  registration->size = bytes;
  {
    const std::lock_guard lock(mutex_);
    registration->devices = devices_;
  }
  const auto& devices = registration->devices;
  if (devices.empty()) throw Failure(Result::kInternalError, "regMr: the connection is closed");
  for (std::size_t lane = 0; lane < devices.size() && bytes > 0; ++lane) {
    const auto same =
        static_cast<std::size_t>(std::find(devices.begin(), devices.end(), devices[lane]) - devices.begin());
    ibv_mr*& region = registration->regions[lane];
    region = same < lane ? registration->regions[same]
                         : ibv_reg_mr(devices[lane]->protection_domain(), data, bytes, access_);
    if (region == nullptr) {
      throw system_failure("register " + std::to_string(bytes) + " bytes of memory with " + devices[lane]->name() +
                           " (is it mapped, is `ulimit -l` high enough?)");
    }
  }
  const std::lock_guard lock(mutex_);
  registrations_.insert(registration.get());
  return registration.release();
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
                     return each->regions.front() != nullptr && each->regions.front()->rkey == key &&
                            each->covers(reinterpret_cast<const void*>(address), bytes);
                   });
  if (may) use();
  return may;
}

void Registrations::close() {
  const std::lock_guard lock(mutex_);
  for (Registration* each : registrations_) delete each;
  registrations_.clear();
  devices_.clear();
}

}  // namespace mesh
