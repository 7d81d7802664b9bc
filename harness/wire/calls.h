// The request for one plugin call, and its answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/wire/fields.h"

namespace plugfest::rank {

/// Members of every answer to a plugin call. `start_ns` is 0 when the plugin has no such function.
struct CallAnswer {
  /// ncclResult_t.
  std::int32_t code = 0;
  /// CLOCK_MONOTONIC before and after the call.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// Writes outside of the outputs.
  std::string damage;
  /// Changes in argument arrays that are only inputs.
  std::string changes;
  PLUGFEST_FIELDS(code, start_ns, end_ns, damage, changes)
};
/// What a plugin gets for a parameter; plugin::SlotLayout says what each of them is.
struct Argument {
  Argument() = default;
  Argument(std::uint64_t value, std::vector<std::byte> content) : number(value), bytes(std::move(content)) {}
  template <class Number>
  requires std::is_integral_v<Number> Argument(Number value) : number(static_cast<std::uint64_t>(value)) {}
  /// The content of an array.
  template <class Item>
  Argument(const std::vector<Item>& items) : bytes(sizeof(Item) * items.size()) {
    if (!items.empty()) std::memcpy(bytes.data(), items.data(), bytes.size());
  }

  /// A number: its value. An output: what it holds before the call, and after it in the answer.
  std::uint64_t number = 0;
  /// Texts, arrays, handles: the content. In the answer: that of handles, properties and arrays after the call.
  std::vector<std::byte> bytes;
  PLUGFEST_FIELDS(number, bytes)
};

/// Calls any function of any interface. Calls of the net pass through plugin::Net and have its parameters, those of the
/// newest version.
struct Call {
  std::string function;
  /// One for each parameter.
  std::vector<Argument> arguments;
  /// connect and accept: a number that the controller chooses. The first call with it makes the handle and the comm
  /// pointer. Later ones pass the same addresses, with the contents that the plugin left.
  std::uint64_t attempt = 0;
  /// test: repeats the call until it is done, for this time at most.
  std::int64_t wait_ns = 0;
  PLUGFEST_FIELDS(function, arguments, attempt, wait_ns)
};
struct CalledAnswer : CallAnswer {
  /// One for each parameter; empty for those that the plugin does not write. None when the plugin has no such function.
  std::vector<Argument> outputs;
  PLUGFEST_FIELDS_AFTER(CallAnswer, outputs)
};
/// Entries of the array that test gets.
inline constexpr std::size_t kSizes = 64;
/// Argument for that array: no array, but NULL. Other numbers are what each entry holds before the call.
inline constexpr std::int64_t kNoArray = std::int64_t{1} << 32;
/// The text at an address that the plugin has stored; a bad address does no harm.
struct TextAt {
  std::uint64_t address = 0;
  PLUGFEST_FIELDS(address)
};
/// Frees the buffers of attempts.
struct EndAttempts {
  std::vector<std::uint64_t> attempts;
  /// Makes the buffers inaccessible instead, so that nothing else gets their addresses.
  bool forbid = false;
  PLUGFEST_FIELDS(attempts, forbid)
};

}  // namespace plugfest::rank
