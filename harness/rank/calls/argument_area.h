// Memory for the outputs and the array arguments of a plugin call, with canaries around each.
//
// NCCL keeps such arrays on its stack. Here they are overwritten as soon as the call has returned, so that a plugin
// that keeps a pointer to one reads wrong values (XF-14).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "harness/wire/calls.h"
#include "harness/wire/memory.h"

namespace plugfest::rank {

/// Arguments of one call at a time. One thread.
class ArgumentArea {
 public:
  ArgumentArea();
  ~ArgumentArea();
  ArgumentArea(const ArgumentArea&) = delete;
  ArgumentArea& operator=(const ArgumentArea&) = delete;

  /// Starts the next call: frees the arguments of the previous one.
  void begin();

  /// Copies an array that the plugin must not change. `name`: a string literal, for messages.
  template <class T>
  T* input(std::string_view name, std::span<const T> items) {
    return reinterpret_cast<T*>(add(name, std::as_bytes(items), sizeof(T), true));
  }
  /// An output that holds `items` before the call.
  template <class T>
  T* output(std::string_view name, std::span<const T> items) {
    return reinterpret_cast<T*>(add(name, std::as_bytes(items), sizeof(T), false));
  }
  template <class T>
  T* output(std::string_view name, const T& item) {
    return output(name, std::span<const T>(&item, 1));
  }
  /// A copy of a handle that ends at a guard page: a write past its end crashes.
  std::byte* handle(std::span<const std::byte, 128> bytes);

  /// Call it after the plugin call: sets `damage` and `changes`, then overwrites all inputs. Outputs are valid until
  /// `begin`.
  void finish(CallAnswer& answer);

 private:
  struct Item {
    std::string_view name;
    std::byte* at;
    std::size_t item_size;
    /// Contents before the call; empty for outputs.
    std::vector<std::byte> before;
    std::size_t size;
  };

  void* add(std::string_view name, std::span<const std::byte> bytes, std::size_t item_size, bool input);

  Mapping memory_;
  Mapping handle_memory_;
  std::byte* next_;
  std::vector<Item> items_;
  bool handle_used_ = false;
};

/// Contents of canaries and of overwritten inputs.
inline constexpr std::uint8_t kCanary = 0xc5;
inline constexpr std::uint8_t kOverwritten = 0xd7;
inline constexpr std::size_t kCanarySize = 64;

}  // namespace plugfest::rank
