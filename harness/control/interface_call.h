// Calls that are described by data (harness/plugin/layout.h): the functions of all interfaces but the net.
//
//   CallOutcome listening = rank.call("listen", {{"dev", 0}});
//   rank.call("closeListen", {{"listenComm", listening.pointer("*listenComm")}});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/control/call.h"

namespace plugfest::control {

/// A number, or the bytes of a text, a structure or an array. For an output: what it holds before the call; for a
/// handle and for properties each byte of it.
struct CallArgument {
  template <class Number>
  requires std::is_integral_v<Number> CallArgument(Number value) : number(static_cast<std::uint64_t>(value)) {}
  CallArgument(std::vector<std::byte> content) : bytes(std::move(content)) {}
  /// With its NUL.
  CallArgument(const char* text);

  std::uint64_t number = 0;
  std::vector<std::byte> bytes = {};
};
using CallArguments = std::map<std::string, CallArgument, std::less<>>;

/// Outcome of a call. Parameters that the version in use lacks hold nothing: 0, no bytes, untouched.
struct CallOutcome : Outcome {
  struct Output {
    std::uint64_t value = 0;
    std::vector<std::byte> bytes;
    bool untouched = true;
  };
  std::map<std::string, Output, std::less<>> outputs;

  bool has(std::string_view parameter) const { return outputs.find(parameter) != outputs.end(); }
  std::uint64_t pointer(std::string_view parameter) const { return output(parameter).value; }
  int integer(std::string_view parameter) const { return static_cast<int>(output(parameter).value); }
  /// The content of a handle or of properties.
  const std::vector<std::byte>& bytes(std::string_view parameter) const { return output(parameter).bytes; }
  /// The output holds what it held before the call.
  bool untouched(std::string_view parameter) const { return output(parameter).untouched; }

 private:
  const Output& output(std::string_view parameter) const;
};

}  // namespace plugfest::control
