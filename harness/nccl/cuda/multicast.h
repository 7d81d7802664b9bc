// Multicast objects: one address for memory of several devices, of which each copy gets what is stored there, and of
// which loads get the sum. Only multimem instructions may access the address. Source: CUDA C++ Programming Guide 13.0,
// section 14.6 (multicast objects), and PTX ISA 9.0, multimem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace plugfest::nccl::cuda {

struct Physical;

/// A table in the object's file says which memory each device has bound. Memory is named by the process that bound it
/// and its descriptor there, so all ranks must run as one user and see each other in /proc. Thread safety: any thread.
class Multicast {
 public:
  /// The most devices of an object, which may contain a whole NVLink domain.
  static constexpr unsigned kMaxDevices = 128;

  static std::size_t table_bytes();

  /// The object in `file`, for `devices` devices that each bind up to `bytes`. Null if it cannot be mapped.
  static std::unique_ptr<Multicast> in(int file, std::size_t bytes, unsigned devices);
  ~Multicast();
  Multicast(const Multicast&) = delete;
  Multicast& operator=(const Multicast&) = delete;

  // Return a CUresult. `device`: the number of a device of this process.
  int add_device(int device);
  int bind(std::size_t at, const std::shared_ptr<Physical>& memory, std::size_t memory_offset, std::size_t bytes);
  int unbind(int device, std::size_t at, std::size_t bytes);

  /// A range in which all devices have bound memory: device i's byte at offset `begin` + n is at members[i] + n.
  struct Members {
    std::size_t begin = 0, end = 0;     ///< offsets in the object; end = 0: a device has no memory there
    std::vector<std::byte*> addresses;  ///< in the same order in all processes
    std::uint32_t version = 0;          ///< valid while version() returns this
  };
  /// The range around `offset`.
  Members members_at(std::size_t offset);

  /// Changes with each binding. Never waits.
  std::uint32_t version() const;

 private:
  struct Table;
  struct Slot;
  struct Binding;
  class Lock;

  Multicast(Table& table, std::size_t bytes) : table_(table), bytes_(bytes) {}
  std::byte* view_of(unsigned slot);
  bool show(const Binding& binding);
  void refresh();

  Table& table_;
  const std::size_t bytes_;
  std::mutex mutex_;               ///< for what follows; before the table's lock
  std::vector<std::byte*> views_;  ///< by slot: address space of bytes_ bytes, in which the device's memory is mapped
  struct Shown {
    unsigned slot;
    std::size_t at, bytes;
  };
  std::map<std::uint64_t, Shown> shown_;                     ///< by the binding's number
  std::map<std::uint64_t, std::shared_ptr<Physical>> held_;  ///< memory that this process has bound, by the number
};

}  // namespace plugfest::nccl::cuda

extern "C" {

/// Gives the addresses by which the CPU accesses the memory that a multicast address stands for: members[i] for the
/// i-th device, in the same order in all processes. Returns the number of devices; 0 if `address` is not a
/// multicast address; -1 if a device has no memory for all `bytes` bytes there, or if there are more than `capacity`
/// devices. Fast if it is called for the same range again. Thread safety: any thread.
int plugfest_cuda_multicast_members(const void* address, std::size_t bytes, void** members, int capacity);
}
