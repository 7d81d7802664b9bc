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

namespace plugfest::wire {

/// Members of every answer to a plugin call. `start_ns` is 0 when the plugin has no such function.
struct CallAnswer {
  /// ncclResult_t.
  std::int32_t code = 0;
  /// CLOCK_MONOTONIC before and after the call.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// Writes outside the outputs.
  std::string damage;
  /// Changes in argument arrays that are only inputs.
  std::string changes;
  PLUGFEST_FIELDS(code, start_ns, end_ns, damage, changes)
};
/// One argument of a plugin call, described by plugin::SlotLayout.
struct Argument {
  Argument() = default;
  Argument(std::uint64_t value, std::vector<std::byte> content) : number(value), bytes(std::move(content)) {}
  template <typename Number>
  requires std::is_integral_v<Number> Argument(Number value) : number(static_cast<std::uint64_t>(value)) {}
  template <typename Item>
  Argument(const std::vector<Item>& items) : bytes(sizeof(Item) * items.size()) {
    if (!items.empty()) std::memcpy(bytes.data(), items.data(), bytes.size());
  }

  /// The value of a number. For an output: its value before the call, and in the answer its value after the call.
  std::uint64_t number = 0;
  /// The content of a text, array or handle. In the answer: of a handle, properties or array after the call.
  std::vector<std::byte> bytes;
  PLUGFEST_FIELDS(number, bytes)
};

/// Calls any function of any interface. Calls of the net pass through plugin::Net and have the parameters of the newest
/// version.
struct Call {
  std::string function;
  std::vector<Argument> arguments;
  /// For connect and accept: a number that the controller chooses. The first call with it creates the handle and the
  /// comm pointer. Later ones pass the same addresses, with the content that the plugin left.
  std::uint64_t attempt = 0;
  /// For test: repeats the call until it is done, at most for this time.
  std::int64_t wait_ns = 0;
  /// For test: repeats the call until it is done, at most this number of times.
  std::uint32_t repeats = 0;
  PLUGFEST_FIELDS(function, arguments, attempt, wait_ns, repeats)
};
struct CalledAnswer : CallAnswer {
  /// One output for each parameter; empty for parameters that the plugin does not write. Then the address of the text
  /// that the function returns, if it returns one. None when the plugin has no such function.
  std::vector<Argument> outputs;
  /// The texts at the addresses in properties, in the order of these members; "" for an invalid address.
  std::vector<std::string> texts;
  PLUGFEST_FIELDS_AFTER(CallAnswer, outputs, texts)
};
/// Number of entries of the array that test gets.
inline constexpr std::size_t kSizes = 64;
/// Number of the argument for that array, for phandles or for another output: passes NULL. Other numbers are the value
/// of the output, or of each entry, before the call.
inline constexpr std::int64_t kNoArray = std::int64_t{1} << 32;
/// Loads the net of the library of another interface, calls its init and devices, and keeps it loaded.
struct InitNet {
  std::string plugin;
  PLUGFEST_FIELDS(plugin)
};
/// The answer of the last call. Its `start_ns` is 0 if the library has no net.
struct InitNetAnswer : CallAnswer {
  std::int32_t devices = 0;
  PLUGFEST_FIELDS_AFTER(CallAnswer, devices)
};
/// The text at an address that the plugin has stored; an invalid address is safe.
struct TextAt {
  std::uint64_t address = 0;
  PLUGFEST_FIELDS(address)
};
/// Frees the buffers of attempts.
struct EndAttempts {
  std::vector<std::uint64_t> attempts;
  /// Makes the buffers inaccessible instead, which keeps their addresses reserved.
  bool forbid = false;
  PLUGFEST_FIELDS(attempts, forbid)
};

}  // namespace plugfest::wire
