#include "harness/rank/attempt.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "fabric/system/file.h"
#include "harness/rank/memory.h"
#include "harness/rank/server.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

std::mutex attempts_mutex;
// Guarded by attempts_mutex and never destroyed: the attempts, the types of devices, and the devices of listeners.
auto& attempts = *new std::map<std::uint64_t, std::unique_ptr<Attempt>>;
auto& device_types = *new std::map<int, abi::DeviceHandle>;
auto& listener_devices = *new std::map<void*, int>;

// The device handle that NCCL allocates for an accept of this listener: none for a HOST device. Source:
// ncclNetGetDeviceHandle.
std::optional<abi::DeviceHandle> allocated_handle(void* listen_comm) {
  const std::lock_guard lock(attempts_mutex);
  const auto device = listener_devices.find(listen_comm);
  if (device == listener_devices.end()) return std::nullopt;
  const auto type = device_types.find(device->second);
  if (type == device_types.end() || type->second.netDeviceType != abi::kDeviceUnpack) return std::nullopt;
  return type->second;
}

Attempt& attempt(std::uint64_t id, std::span<const std::byte> handle, std::uint64_t comm_slot) {
  const std::lock_guard lock(attempts_mutex);
  auto& found = attempts[id];
  if (!found) found = std::make_unique<Attempt>(handle, comm_slot);
  return *found;
}

}  // namespace

void note_device_type(int device, const abi::newest::Properties& properties) {
  const std::lock_guard lock(attempts_mutex);
  device_types[device] = {properties.netDeviceType, properties.netDeviceVersion, nullptr, 0, 0};
}

void note_listener(void* listen_comm, int device) {
  const std::lock_guard lock(attempts_mutex);
  listener_devices[listen_comm] = device;
}

Attempt::Attempt(std::span<const std::byte> handle, std::uint64_t comm_slot)
    : memory_(map_guarded(sizeof(Slots) + abi::kHandleBytes, true)), handle_size_(handle.size()) {
  std::memset(pointer(memory_.address), kCanary, sizeof(Slots));
  slots().comm = pointer(comm_slot);
  if (!handle.empty()) std::memcpy(this->handle(), handle.data(), handle.size());
}

Attempt::~Attempt() { unmap_guarded(memory_); }

void Attempt::forbid() {
  if (mprotect(pointer(memory_.pages_address), memory_.pages_size, PROT_NONE) != 0)
    throw_errno("forbid access to the arguments of a call");
}

Attempt::Slots& Attempt::slots() { return *static_cast<Slots*>(pointer(memory_.address)); }
std::byte* Attempt::handle() { return static_cast<std::byte*>(pointer(memory_.address)) + sizeof(Slots); }

PointerAnswer Attempt::connect(std::uint64_t context, std::int32_t device, bool with_device_handle) {
  PointerAnswer answer;
  const std::uint64_t before = number(slots().comm);
  slots().device_handle = nullptr;
  enter_plugin("connect", answer, [&] {
    return subject().connect(pointer(context), device, handle(), comm(),
                             with_device_handle ? device_handle() : nullptr);
  });
  return finish(answer, before);
}

PointerAnswer Attempt::accept(std::uint64_t listener, bool with_device_handle) {
  PointerAnswer answer;
  const std::uint64_t before = number(slots().comm);
  const std::optional<abi::DeviceHandle> allocated = allocated_handle(pointer(listener));
  slots().device_handle = allocated ? &slots().unpack : nullptr;
  if (allocated) slots().unpack = *allocated;
  enter_plugin("accept", answer, [&] {
    return subject().accept(pointer(listener), comm(), with_device_handle ? device_handle() : nullptr);
  });
  return finish(answer, before);
}

PointerAnswer Attempt::finish(PointerAnswer answer, std::uint64_t comm_before) {
  overwrite_dead_stack();
  answer.value = number(slots().comm);
  answer.untouched = answer.value == comm_before;
  const Slots& now = slots();
  if (compare_byte(now.before, sizeof now.before, kCanary).bytes != 0 ||
      compare_byte(now.between, sizeof now.between, kCanary).bytes != 0)
    answer.damage = "wrote beside the comm pointer";
  else if (compare_byte(now.after, sizeof now.after, kCanary).bytes != 0 ||
           compare_byte(now.after_unpack, sizeof now.after_unpack, kCanary).bytes != 0)
    answer.damage = handle_size_ != 0 ? "wrote before the handle" : "wrote beside the device handle pointer";
  return answer;
}

CalledAnswer execute_attempt(const Call& request) {
  const std::vector<Argument>& arguments = request.arguments;
  const bool connects = request.function == "connect";
  const std::size_t comm = connects ? 3 : 1;
  if (connects && arguments[2].bytes.size() != abi::kHandleBytes) throw WireError("a handle of another size");
  Attempt& made =
      attempt(request.attempt, connects ? arguments[2].bytes : std::vector<std::byte>(), arguments[comm].number);
  const bool with_device_handle = arguments.back().number != 0;
  const PointerAnswer called =
      connects ? made.connect(arguments[0].number, static_cast<std::int32_t>(arguments[1].number), with_device_handle)
               : made.accept(arguments[0].number, with_device_handle);
  CalledAnswer answer{called, std::vector<Argument>(arguments.size()), {}};
  answer.outputs[comm].number = called.value;
  return answer;
}

Nothing execute(const EndAttempts& request) {
  const std::lock_guard lock(attempts_mutex);
  for (const std::uint64_t attempt : request.attempts)
    if (!request.forbid)
      attempts.erase(attempt);
    else if (const auto found = attempts.find(attempt); found != attempts.end())
      found->second->forbid();
  return {};
}

}  // namespace plugfest::rank
