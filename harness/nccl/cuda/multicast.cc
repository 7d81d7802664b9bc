#include "harness/nccl/cuda/multicast.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <span>
#include <tuple>
#include <utility>

#include "harness/nccl/cuda/physical_memory.h"
#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {
namespace {

constexpr std::size_t kMaxBindings = 16384;

std::byte* reserve(std::size_t bytes) {
  void* const pages = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : static_cast<std::byte*>(pages);
}

}  // namespace

struct Multicast::Slot {
  pid_t process;
  int device;
};

struct Multicast::Binding {
  std::uint64_t number;  // 0: unused
  unsigned slot;
  FileOfProcess memory;
  std::size_t at, memory_offset, bytes;
};

// In the file, for all processes. Zero at first.
struct Multicast::Table {
  pthread_mutex_t mutex;
  std::atomic<std::uint32_t> version;
  unsigned devices;  // that the object is for
  unsigned added;
  std::uint64_t numbers;
  std::size_t used;  // bindings before this one may be in use
  std::array<Slot, kMaxDevices> slots;
  std::array<Binding, kMaxBindings> bindings;

  std::span<Binding> in_use() { return {bindings.data(), used}; }
};

// The lock of the table. A process that died with it has left the table as it was before or after its change.
class Multicast::Lock {
 public:
  explicit Lock(Table& table) : table_(table) {
    if (::pthread_mutex_lock(&table.mutex) == EOWNERDEAD) ::pthread_mutex_consistent(&table.mutex);
  }
  ~Lock() { ::pthread_mutex_unlock(&table_.mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Table& table_;
};

std::size_t Multicast::table_bytes() { return sizeof(Table); }

std::unique_ptr<Multicast> Multicast::in(int file, std::size_t bytes, unsigned devices) {
  void* const pages = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (pages == MAP_FAILED) return nullptr;
  Table& table = *static_cast<Table*>(pages);
  if (table.devices == 0) {
    // This process has just made the file.
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&table.mutex, &attributes);
    ::pthread_mutexattr_destroy(&attributes);
    table.devices = devices;
  }
  return std::unique_ptr<Multicast>(new Multicast(table, bytes));
}

Multicast::~Multicast() {
  {
    const Lock lock(table_);
    for (Binding& binding : table_.in_use())
      if (held_.contains(binding.number)) binding.number = 0;
    if (!held_.empty()) ++table_.version;
  }
  for (std::byte* const view : views_)
    if (view != nullptr) ::munmap(view, bytes_);
  ::munmap(&table_, sizeof(Table));
}

std::uint32_t Multicast::version() const { return table_.version.load(std::memory_order_acquire); }

int Multicast::add_device(int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  const Lock lock(table_);
  const Slot slot = {::getpid(), device};
  for (unsigned i = 0; i < table_.added; ++i)
    if (table_.slots[i].process == slot.process && table_.slots[i].device == device) return kInvalidValue;
  if (table_.added == table_.devices) return kInvalidValue;
  table_.slots[table_.added++] = slot;
  ++table_.version;
  return kSuccess;
}

int Multicast::bind(std::size_t at, const std::shared_ptr<Physical>& memory, std::size_t memory_offset,
                    std::size_t bytes) {
  if (bytes == 0 || (at | memory_offset | bytes) % kGranularity != 0 || memory->multicast != nullptr || at > bytes_ ||
      bytes > bytes_ - at || memory_offset > memory->bytes || bytes > memory->bytes - memory_offset)
    return kInvalidValue;
  const std::lock_guard own(mutex_);
  const Lock lock(table_);
  const auto* const begin = table_.slots.data();
  const auto* const end = begin + table_.added;
  const auto* const slot = std::find_if(begin, end, [&](const Slot& one) {
    return one.process == ::getpid() && one.device == memory->properties.location.id;
  });
  if (slot == end || memory->properties.location.type != kDeviceLocation) return kInvalidDevice;
  const auto number = static_cast<unsigned>(slot - begin);
  Binding* free = nullptr;
  for (Binding& one : table_.in_use()) {
    if (one.number == 0) free = &one;
    if (one.number != 0 && one.slot == number && at < one.at + one.bytes && one.at < at + bytes) return kInvalidValue;
  }
  if (free == nullptr && table_.used == kMaxBindings) return kMemoryAllocation;
  if (free == nullptr) free = &table_.bindings[table_.used++];
  *free = {.number = 0,
           .slot = number,
           .memory = FileOfProcess::of(memory->file.get()),
           .at = at,
           .memory_offset = memory_offset,
           .bytes = bytes};
  free->number = ++table_.numbers;
  held_[free->number] = memory;
  ++table_.version;
  return kSuccess;
}

int Multicast::unbind(int device, std::size_t at, std::size_t bytes) {
  const std::lock_guard own(mutex_);
  const Lock lock(table_);
  bool found = false;
  for (Binding& one : table_.in_use()) {
    const Slot& slot = table_.slots[one.slot];
    if (one.number == 0 || slot.process != ::getpid() || slot.device != device || one.at < at ||
        one.at + one.bytes > at + bytes)
      continue;
    held_.erase(one.number);
    one.number = 0;
    found = true;
  }
  if (!found) return kInvalidValue;
  ++table_.version;
  return kSuccess;
}

// Null if no address space is left.
std::byte* Multicast::view_of(unsigned slot) {
  if (views_.size() <= slot) views_.resize(slot + 1);
  if (views_[slot] == nullptr) views_[slot] = reserve(bytes_);
  return views_[slot];
}

// Maps the memory of a binding. False if its process has ended.
bool Multicast::show(const Binding& binding) {
  std::byte* const view = view_of(binding.slot);
  const Descriptor file = binding.memory.open();
  if (view == nullptr || !file) return false;
  if (::mmap(view + binding.at, binding.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             file.get(), static_cast<off_t>(binding.memory_offset)) == MAP_FAILED)
    return false;
  shown_[binding.number] = {binding.slot, binding.at, binding.bytes};
  return true;
}

// Makes the views show the bindings of the table, whose lock the caller holds.
void Multicast::refresh() {
  std::map<std::uint64_t, const Binding*> wanted;
  for (const Binding& one : table_.in_use())
    if (one.number != 0) wanted[one.number] = &one;
  std::erase_if(shown_, [&](const auto& entry) {
    const auto& [number, shown] = entry;
    if (wanted.contains(number)) return false;
    ::mmap(views_[shown.slot] + shown.at, shown.bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return true;
  });
  for (const auto& [number, binding] : wanted)
    if (!shown_.contains(number)) show(*binding);
}

Multicast::Members Multicast::members_at(std::size_t offset) {
  const std::lock_guard own(mutex_);
  const Lock lock(table_);
  refresh();
  Members members = {.begin = 0, .end = bytes_, .addresses = {}, .version = version()};
  std::vector<unsigned> slots;
  for (const auto& [number, shown] : shown_) {
    if (offset < shown.at || offset - shown.at >= shown.bytes) continue;
    slots.push_back(shown.slot);
    members.begin = std::max(members.begin, shown.at);
    members.end = std::min(members.end, shown.at + shown.bytes);
  }
  if (slots.size() != table_.devices) return {};
  // The order in which devices were added depends on timing.
  std::sort(slots.begin(), slots.end(), [&](unsigned a, unsigned b) {
    const auto key = [&](unsigned slot) { return std::pair(table_.slots[slot].device, table_.slots[slot].process); };
    return key(a) < key(b);
  });
  for (const unsigned slot : slots) members.addresses.push_back(views_[slot] + members.begin);
  return members;
}

}  // namespace plugfest::nccl::cuda

using namespace plugfest::nccl::cuda;

namespace {

// Calls `action` with the multicast object of a handle.
template <typename Action>
int with_multicast(unsigned long long handle, Action action) {
  if (!has_virtual_memory()) return kNotSupported;
  const std::shared_ptr<Physical> object = physical_of(handle);
  return object == nullptr || object->multicast == nullptr ? static_cast<int>(kInvalidValue)
                                                           : action(*object->multicast);
}

}  // namespace

extern "C" {

int cuMulticastAddDevice(unsigned long long handle, int device) {
  return with_multicast(handle, [&](Multicast& object) { return object.add_device(device); });
}

// NVIDIA's driver waits until all devices have been added. Nothing depends on that here.
int cuMulticastBindMem(unsigned long long handle, std::size_t at, unsigned long long memory, std::size_t memory_offset,
                       std::size_t bytes, unsigned long long) {
  return with_multicast(handle, [&](Multicast& object) {
    const std::shared_ptr<Physical> bound = physical_of(memory);
    return bound == nullptr ? static_cast<int>(kInvalidValue) : object.bind(at, bound, memory_offset, bytes);
  });
}

int cuMulticastUnbind(unsigned long long handle, int device, std::size_t at, std::size_t bytes) {
  return with_multicast(handle, [&](Multicast& object) { return object.unbind(device, at, bytes); });
}
}
