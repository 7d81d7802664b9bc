// Delays stores, so that other blocks and ranks see them late: x86-64 makes stores visible in their order, GPUs do not,
// so a missing fence has an effect only if stores are delayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <unordered_map>
#include <vector>

namespace plugfest::kernels {

/// The memory of this process that other processes, or other GPUs, access too. Thread safety: any thread.
class SharedMemory {
 public:
  void add(const void* begin, std::size_t bytes);
  /// `begin`: the argument of add().
  void remove(const void* begin);
  bool contains(const void* address) const;

 private:
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };
  mutable std::mutex mutex_;
  std::vector<Range> ranges_;
};

/// The shared memory of the process. It is never destroyed.
SharedMemory& shared_memory();

/// Holds back the stores of one block to shared memory, as the caches of a GPU may do: until a release, until a thread
/// of the block loads or stores the same word, or for a time that a generator chooses, in any order.
///
/// The block calls before_store() before it stores. The next call of a function moves the stored value from the memory
/// into the buffer. Source: PTX ISA 9.0, section 8 (memory consistency model). Thread safety: one thread.
class StoreBuffer {
 public:
  explicit StoreBuffer(std::uint64_t seed) : random_(seed) {}
  ~StoreBuffer() { release(); }
  StoreBuffer(const StoreBuffer&) = delete;
  StoreBuffer& operator=(const StoreBuffer&) = delete;

  /// The block is about to store to `address`, at most 16 bytes.
  void before_store(void* address, std::size_t bytes);
  /// The block is about to load, or to access by an atomic operation: its earlier stores there become visible.
  void before_load(const void* address, std::size_t bytes);
  /// Call it when the announced store has been executed, because another thread of the block runs.
  void settle();
  /// All earlier stores become visible: a fence or an operation with release semantics, or the end of the block.
  void release();

 private:
  struct Word {
    std::byte* address = nullptr;  // aligned to kWord
    std::uint64_t value = 0;
    unsigned stored = 0;  // a bit for each byte
  };
  static constexpr std::size_t kWord = 8, kMaxBytes = 16;

  void hold_back(std::byte* address, std::byte value);
  void make_visible(std::size_t index);

  std::mt19937_64 random_;
  std::byte* pending_ = nullptr;  // the store that happens after before_store()
  std::size_t pending_bytes_ = 0;
  std::byte visible_[kMaxBytes] = {};  // what others see at pending_
  std::vector<Word> words_;
  std::unordered_map<std::uintptr_t, std::size_t> index_of_;
};

}  // namespace plugfest::kernels
