// A function table whose every call is refused: what a library mutant exports, which is judged before any call.
#pragma once

#include <cstddef>
#include <utility>

#include "harness/abi/net_v12.h"

#define MUTANT_EXPORT extern "C" __attribute__((visibility("default")))

namespace plugfest::mutants::ld {

template <typename Function>
struct Refusal;
template <typename... Arguments>
struct Refusal<abi::Result (*)(Arguments...)> {
  static abi::Result call(Arguments... /*unused*/) { return abi::Result::kSystemError; }
};

/// Stands for a function of any signature.
struct Refuse {
  template <typename Function>
  constexpr operator Function() const {
    return &Refusal<Function>::call;
  }
};

/// A table of any version: the name, and functions.
template <typename Net = abi::v12::Net>
constexpr Net refusing_net(const char* name) {
  return []<std::size_t... kSlot>(const char* first, std::index_sequence<kSlot...>) {
    return Net{first, ((void)kSlot, Refuse{})...};
  }
  (name, std::make_index_sequence<sizeof(Net) / sizeof(void*) - 1>{});
}

}  // namespace plugfest::mutants::ld
