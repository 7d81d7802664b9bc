// Registers and deregisters host memory.
#include "plugins/mesh/transfer/registrations.h"

#include <string>

#include "plugins/mesh/failure.h"

namespace mesh {
namespace {

void release(Registration* registration) {
  if (registration->region != nullptr) ibv_dereg_mr(registration->region);
  delete registration;
}

}  // namespace

Registrations::Registrations(std::shared_ptr<const Device> device, int access)
    : access_(access), device_(std::move(device)) {}

Registrations::~Registrations() { close(); }

Registration* Registrations::add(void* data, std::size_t bytes) {
  auto registration = std::make_unique<Registration>();
  registration->begin = reinterpret_cast<std::uintptr_t>(data);
  registration->size = bytes;
  {
    const std::lock_guard lock(mutex_);
    registration->device = device_;
  }
  if (!registration->device) throw Failure(Result::kInternalError, "regMr: the connection is closed");
  if (bytes > 0) {
    registration->region = ibv_reg_mr(registration->device->protection_domain(), data, bytes, access_);
    if (registration->region == nullptr) {
      throw system_failure("register " + std::to_string(bytes) + " bytes of memory with " +
                           registration->device->name() + " (is it mapped, is `ulimit -l` high enough?)");
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
  release(registration);
}

void Registrations::close() {
  const std::lock_guard lock(mutex_);
  for (Registration* each : registrations_) release(each);
  registrations_.clear();
  device_.reset();
}

}  // namespace mesh
