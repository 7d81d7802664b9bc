// Handles of memory and of multicast objects. Another process identifies the object in a descriptor by the last page of
// its file.
#include "harness/nccl/cuda/physical_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "fabric/system/number.h"
#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {
namespace {

constexpr std::size_t kPage = 4096;

// The last page of the file of an object.
struct Description {
  std::array<char, 16> magic;
  AllocationProperties properties;
  std::size_t bytes;
  unsigned devices;  // of a multicast object; 0: memory
};
constexpr std::array<char, 16> kMagic = {"plugfest-memory"};

// A CUmemFabricHandle, which has 64 bytes.
struct FabricHandle {
  std::array<char, 16> magic;
  FileOfProcess file;
  std::array<char, 24> rest;
};
static_assert(sizeof(FabricHandle) == 64);

bool is_one(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

// The CUmemAllocationHandleTypes that objects can have.
int handle_types() { return kDescriptorHandle | (has_nvlink_domain() ? kFabricHandle : 0); }

// The objects by their handles. Never destroyed, because threads may outlive main().
class Handles {
 public:
  static Handles& instance() {
    static auto* const handles = new Handles;
    return *handles;
  }

  unsigned long long add(std::shared_ptr<Physical> object) {
    const std::lock_guard lock(mutex_);
    // A handle of another process, which NCCL passes to its peers, must not name an object here.
    object->handle = (static_cast<unsigned long long>(::getpid()) << 32) + ++count_;
    const unsigned long long handle = object->handle;
    by_handle_[handle] = {std::move(object), 1};
    return handle;
  }

  std::shared_ptr<Physical> find(unsigned long long handle) {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(handle);
    return found == by_handle_.end() ? nullptr : found->second.object;
  }

  void retain(const std::shared_ptr<Physical>& object) {
    const std::lock_guard lock(mutex_);
    Entry& entry = by_handle_[object->handle];
    entry.object = object;
    ++entry.references;
  }

  bool release(unsigned long long handle) {
    std::shared_ptr<Physical> last;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(handle);
    if (found == by_handle_.end()) return false;
    if (--found->second.references > 0) return true;
    last = std::move(found->second.object);
    by_handle_.erase(found);
    return true;
  }

 private:
  struct Entry {
    std::shared_ptr<Physical> object;
    int references = 0;
  };

  std::mutex mutex_;
  std::map<unsigned long long, Entry> by_handle_;
  unsigned count_ = 0;
};

// Gives the object in `file` a handle.
int adopt(unsigned long long* handle, Descriptor file, const Description& description) {
  auto object = std::make_shared<Physical>();
  object->bytes = description.bytes;
  object->properties = description.properties;
  object->file = std::move(file);
  if (!object->file) return kMemoryAllocation;
  if (description.devices != 0) {
    object->multicast = Multicast::in(object->file.get(), description.bytes, description.devices);
    if (object->multicast == nullptr) return kMemoryAllocation;
  }
  return give(handle, Handles::instance().add(std::move(object)));
}

// Makes an object whose file has `body` bytes before its description.
int create(unsigned long long* handle, std::size_t body, const Description& description) {
  Descriptor file = memory_file(body + kPage);
  if (file && ::pwrite(file.get(), &description, sizeof(description), static_cast<off_t>(body)) !=
                  static_cast<ssize_t>(sizeof(description)))
    file.close();
  return adopt(handle, std::move(file), description);
}

}  // namespace

bool has_virtual_memory() {
  static const bool has = is_one(kVirtualMemoryVariable);
  return has;
}

bool has_nvlink_domain() {
  static const bool has = has_virtual_memory() && is_one(kNvlinkDomainVariable);
  return has;
}

Descriptor memory_file(std::size_t bytes) {
  static std::once_flag once;
  std::call_once(once, raise_descriptor_limit);
  Descriptor file(::memfd_create("device-memory", MFD_CLOEXEC));
  if (file && ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) file.close();
  return file;
}

int reopened(int file, off_t position) {
  const int again = ::open(fmt::format("/proc/self/fd/{}", file).c_str(), O_RDWR | O_CLOEXEC);
  if (again >= 0) ::lseek(again, position, SEEK_SET);
  return again;
}

FileOfProcess FileOfProcess::of(int file) {
  struct stat status {};
  ::fstat(file, &status);  // cannot fail for an open file
  return {::getpid(), file, status.st_dev, status.st_ino};
}

Descriptor FileOfProcess::open() const {
  Descriptor file(::open(fmt::format("/proc/{}/fd/{}", process, descriptor).c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || status.st_dev != device || status.st_ino != number) file.close();
  return file;
}

Physical::~Physical() = default;

std::shared_ptr<Physical> physical_of(unsigned long long handle) { return Handles::instance().find(handle); }
void retain(const std::shared_ptr<Physical>& memory) { Handles::instance().retain(memory); }

}  // namespace plugfest::nccl::cuda

using namespace plugfest;
using namespace plugfest::nccl::cuda;

extern "C" {

int cuMemCreate(unsigned long long* handle, std::size_t bytes, const AllocationProperties* properties,
                unsigned long long flags) {
  if (!has_virtual_memory()) return kNotSupported;
  const Location& location = properties->location;
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0) return kInvalidValue;
  if (location.type == kDeviceLocation && (location.id < 0 || location.id >= device_count())) return kInvalidDevice;
  if ((properties->handle_types & ~handle_types()) != 0) return kNotSupported;
  return create(handle, bytes, {kMagic, *properties, bytes, 0});
}

int cuMulticastCreate(unsigned long long* handle, const MulticastProperties* properties) {
  if (!has_virtual_memory()) return kNotSupported;
  if (properties->devices == 0 || properties->devices > Multicast::kMaxDevices || properties->bytes == 0 ||
      properties->bytes % kGranularity != 0 || properties->flags != 0)
    return kInvalidValue;
  if ((properties->handle_types & ~static_cast<unsigned long long>(handle_types())) != 0) return kNotSupported;
  AllocationProperties shown{};
  shown.type = 1;  // pinned
  shown.handle_types = static_cast<int>(properties->handle_types);
  return create(handle, round_up(Multicast::table_bytes(), kPage),
                {kMagic, shown, properties->bytes, properties->devices});
}

int cuMemRelease(unsigned long long handle) {
  if (!has_virtual_memory()) return kNotSupported;
  return Handles::instance().release(handle) ? kSuccess : kInvalidValue;
}

int cuMemGetAllocationGranularity(std::size_t* granularity, const AllocationProperties*, int) {
  return has_virtual_memory() ? give(granularity, kGranularity) : kNotSupported;
}

int cuMulticastGetGranularity(std::size_t* granularity, const MulticastProperties*, int) {
  return has_virtual_memory() ? give(granularity, kGranularity) : kNotSupported;
}

int cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties, unsigned long long handle) {
  if (!has_virtual_memory()) return kNotSupported;
  const std::shared_ptr<Physical> object = physical_of(handle);
  return object == nullptr ? kInvalidValue : give(properties, object->properties);
}

int cuMemExportToShareableHandle(void* exported, unsigned long long handle, int type, unsigned long long flags) {
  if (!has_virtual_memory()) return kNotSupported;
  const std::shared_ptr<Physical> object = physical_of(handle);
  if (object == nullptr || flags != 0 || (object->properties.handle_types & type) == 0) return kInvalidValue;
  if (type == kFabricHandle)
    return give(static_cast<FabricHandle*>(exported), FabricHandle{kMagic, FileOfProcess::of(object->file.get()), {}});
  if (type != kDescriptorHandle) return kInvalidValue;
  const int copy = ::fcntl(object->file.get(), F_DUPFD_CLOEXEC, 0);
  return copy < 0 ? kMemoryAllocation : give(static_cast<int*>(exported), copy);
}

int cuMemImportFromShareableHandle(unsigned long long* handle, void* exported, int type) {
  if (!has_virtual_memory()) return kNotSupported;
  Descriptor file;
  if (type == kFabricHandle && has_nvlink_domain()) {
    const auto& theirs = *static_cast<const FabricHandle*>(exported);
    if (theirs.magic == kMagic) file = theirs.file.open();
  } else if (type == kDescriptorHandle) {
    const int theirs = static_cast<int>(reinterpret_cast<std::uintptr_t>(exported));
    file = Descriptor(::fcntl(theirs, F_DUPFD_CLOEXEC, 0));
  }
  struct stat status {};
  Description description{};
  if (::fstat(file.get(), &status) != 0 || status.st_size < static_cast<off_t>(kPage) ||
      ::pread(file.get(), &description, sizeof(description), status.st_size - static_cast<off_t>(kPage)) !=
          static_cast<ssize_t>(sizeof(description)) ||
      description.magic != kMagic)
    return kInvalidValue;
  return adopt(handle, std::move(file), description);
}
}
