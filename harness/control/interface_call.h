// Arguments and outcome of Rank::call, which calls any function of an interface.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/call.h"
#include "harness/plugin/layout.h"

namespace plugfest::control {

/// An argument of Rank::call: a number, or the bytes of a text, a struct or an array. For an output: its value before
/// the call; for a handle and for properties the value of each byte.
struct CallArgument {
  CallArgument(std::integral auto value) : number(static_cast<std::uint64_t>(value)) {}
  CallArgument(std::vector<std::byte> content) : bytes(std::move(content)) {}
  /// A text with its NUL.
  CallArgument(const char* text);

  std::uint64_t number = 0;
  std::vector<std::byte> bytes = {};
};
using CallArguments = std::map<std::string, CallArgument, std::less<>>;

/// Arguments of init of a tuner, for a communicator.
CallArguments tuner_arguments(std::size_t ranks, std::size_t nodes);
/// Arguments of init of an interface other than net, for a communicator of two ranks.
CallArguments init_arguments(plugin::InterfaceKind interface, std::uint64_t comm_id);

/// The name of the address that a function returns instead of a result code.
inline constexpr std::string_view kReturned = "return";

/// Outcome of a call. Parameters that the version in use lacks are empty: 0, no bytes, untouched.
struct CallOutcome : Outcome {
  struct Output {
    std::uint64_t value = 0;
    std::vector<std::byte> bytes;
    bool untouched = true;
  };
  std::map<std::string, Output, std::less<>> outputs;
  std::vector<std::string> texts;  ///< see wire::CalledAnswer

  bool has(std::string_view parameter) const { return outputs.find(parameter) != outputs.end(); }
  std::uint64_t pointer(std::string_view parameter) const { return output(parameter).value; }
  int integer(std::string_view parameter) const { return static_cast<int>(output(parameter).value); }
  /// The content of a handle or of properties.
  const std::vector<std::byte>& bytes(std::string_view parameter) const { return output(parameter).bytes; }
  /// Whether the output still has its value from before the call.
  bool untouched(std::string_view parameter) const { return output(parameter).untouched; }

 private:
  const Output& output(std::string_view parameter) const;
};

}  // namespace plugfest::control
