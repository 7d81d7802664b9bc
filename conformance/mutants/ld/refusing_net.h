// A function table whose every call is refused: what a library mutant exports, which is judged before any call.
#pragma once

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

constexpr abi::v12::Net refusing_net(const char* name) {
  constexpr Refuse kNo;
  return {name, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo,
          kNo,  kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo};
}

}  // namespace plugfest::mutants::ld
