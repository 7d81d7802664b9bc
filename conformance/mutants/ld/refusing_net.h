// The function table of library mutants: every function returns an error, since no rule calls one.
#pragma once

#include <cstddef>
#include <utility>

#include "harness/abi/net.h"

#define MUTANT_EXPORT extern "C" __attribute__((visibility("default")))

namespace plugfest::mutants::ld {

template <typename Function>
struct Refusal;
template <typename... Arguments>
struct Refusal<abi::Result (*)(Arguments...)> {
  static abi::Result call(Arguments... /*unused*/) { return abi::Result::kSystemError; }
};

/// Converts to a pointer to a refusing function of any signature.
struct Refuse {
  template <typename Function>
  constexpr operator Function() const {
    return &Refusal<Function>::call;
  }
};

/// The function table of any version, with this name.
template <typename Net = abi::v12::Net>
constexpr Net refusing_net(const char* name) {
  return []<std::size_t... kSlot>(const char* first, std::index_sequence<kSlot...>) {
    return Net{first, ((void)kSlot, Refuse{})...};
  }
  (name, std::make_index_sequence<sizeof(Net) / sizeof(void*) - 1>{});
}

}  // namespace plugfest::mutants::ld
