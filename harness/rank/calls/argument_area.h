// Where the arguments of a plugin call lie: outputs and arrays with canaries around them, before a guard page.
//
// NCCL keeps such arrays on its stack. Here they are overwritten as soon as the call has returned, so a plugin that
// kept a pointer to one reads rubbish from then on (XF-14).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "harness/rank/protocol/protocol.h"

namespace plugfest::rank {

/// One area, for one call at a time. One thread.
class ArgumentArea {
 public:
  ArgumentArea();
  ~ArgumentArea();
  ArgumentArea(const ArgumentArea&) = delete;
  ArgumentArea& operator=(const ArgumentArea&) = delete;

  /// Forgets the call before.
  void begin();

  /// Copies an array that the plugin should only read. `name` must be a literal.
  template <class T>
  T* input(std::string_view name, std::span<const T> items) {
    return reinterpret_cast<T*>(place(name, std::as_bytes(items), sizeof(T), true));
  }
  /// Room for an output that holds `items` at first.
  template <class T>
  T* output(std::string_view name, std::span<const T> items) {
    return reinterpret_cast<T*>(place(name, std::as_bytes(items), sizeof(T), false));
  }
  template <class T>
  T* output(std::string_view name, const T& item) {
    return output(name, std::span<const T>(&item, 1));
  }
  /// Room for a handle, which ends where the guard page begins: a write past it crashes.
  std::byte* handle(std::span<const std::byte, 128> bytes);

  /// After the call: fills in `damage` and `changes`, then overwrites all inputs. Outputs stay until `begin`.
  void finish(CallAnswer& answer);

 private:
  struct Item {
    std::string_view name;
    std::byte* at;
    std::size_t item_size;
    /// The inputs as they were; empty for outputs.
    std::vector<std::byte> before;
    std::size_t size;
  };

  void* place(std::string_view name, std::span<const std::byte> bytes, std::size_t item_size, bool input);

  Mapping memory_;
  Mapping handle_memory_;
  std::byte* next_;
  std::vector<Item> items_;
  bool handle_used_ = false;
};

/// What stands in canaries, and what overwrites inputs.
inline constexpr std::uint8_t kCanary = 0xc5;
inline constexpr std::uint8_t kOverwritten = 0xd7;
inline constexpr std::size_t kCanarySize = 64;

}  // namespace plugfest::rank
