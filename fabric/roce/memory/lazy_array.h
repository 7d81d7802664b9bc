// Arrays whose memory the kernel allocates on first access, for rings that are rarely full.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace plugfest::roce {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

template <typename Element>
using LazyArray = std::unique_ptr<Element[], FreeMemory>;

/// Zeroed; null for a `count` of 0. Errors: std::bad_alloc.
template <typename Element>
LazyArray<Element> make_lazy_array(std::size_t count) {
  if (count == 0) return nullptr;
  void* const memory = std::calloc(count, sizeof(Element));
  if (memory == nullptr) throw std::bad_alloc();
  return LazyArray<Element>(static_cast<Element*>(memory));
}

}  // namespace plugfest::roce
