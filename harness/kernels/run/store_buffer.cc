#include "harness/kernels/run/store_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace plugfest::kernels {
namespace {

// On average, every kStoresPerEviction-th store makes an earlier one visible.
constexpr std::uint64_t kStoresPerEviction = 64;

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

void SharedMemory::add(const void* begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  ranges_.push_back({number(begin), bytes});
}

void SharedMemory::remove(const void* begin) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const Range& range) { return range.begin == number(begin); });
}

bool SharedMemory::contains(const void* address) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& range) { return number(address) - range.begin < range.bytes; });
}

SharedMemory& shared_memory() {
  static auto* const memory = new SharedMemory;
  return *memory;
}

void StoreBuffer::before_store(void* address, std::size_t bytes) {
  settle();
  if (bytes > kMaxBytes || !shared_memory().contains(address)) return;
  pending_ = static_cast<std::byte*>(address);
  pending_bytes_ = bytes;
  std::memcpy(visible_, address, bytes);
  if (!words_.empty() && random_() % kStoresPerEviction == 0) make_visible(random_() % words_.size());
}

void StoreBuffer::before_load(const void* address, std::size_t bytes) {
  settle();
  if (words_.empty()) return;
  for (std::uintptr_t word = number(address) / kWord; word <= (number(address) + bytes - 1) / kWord; ++word)
    if (const auto found = index_of_.find(word); found != index_of_.end()) make_visible(found->second);
}

void StoreBuffer::release() {
  settle();
  while (!words_.empty()) make_visible(random_() % words_.size());
}

void StoreBuffer::settle() {
  if (pending_ == nullptr) return;
  std::byte* const address = std::exchange(pending_, nullptr);
  for (std::size_t i = 0; i < pending_bytes_; ++i) hold_back(address + i, address[i]);
  std::memcpy(address, visible_, pending_bytes_);
}

void StoreBuffer::hold_back(std::byte* address, std::byte value) {
  const std::uintptr_t word = number(address) / kWord;
  const std::size_t offset = number(address) % kWord;
  const auto [found, is_new] = index_of_.try_emplace(word, words_.size());
  if (is_new) words_.push_back({address - offset});
  Word& held = words_[found->second];
  std::memcpy(reinterpret_cast<std::byte*>(&held.value) + offset, &value, 1);
  held.stored |= 1U << offset;
}

void StoreBuffer::make_visible(std::size_t index) {
  const Word word = words_[index];
  index_of_.erase(number(word.address) / kWord);
  if (index + 1 < words_.size()) {
    words_[index] = words_.back();
    index_of_[number(words_[index].address) / kWord] = index;
  }
  words_.pop_back();
  // A store of a whole word must not be seen in parts.
  if (word.stored == 0xff) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(word.address), word.value, __ATOMIC_RELAXED);
  } else if (word.stored == 0x0f || word.stored == 0xf0) {
    const std::size_t offset = word.stored == 0x0f ? 0 : 4;
    std::uint32_t half = 0;
    std::memcpy(&half, reinterpret_cast<const std::byte*>(&word.value) + offset, sizeof(half));
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(word.address + offset), half, __ATOMIC_RELAXED);
  } else {
    for (std::size_t i = 0; i < kWord; ++i)
      if ((word.stored >> i & 1U) != 0) word.address[i] = reinterpret_cast<const std::byte*>(&word.value)[i];
  }
}

}  // namespace plugfest::kernels
