// The functions of an interface other than the net, replaceable one by one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "harness/abi/base.h"
#include "harness/plugin/layout.h"

namespace plugfest::mutants {

/// The arguments of a call, in the order of plugin::Parameter; a pointer is its address. The rest holds nothing.
using Words = std::array<std::uint64_t, 11>;

/// By the name of the function. A mutation replaces some, and erases those that are to be NULL after init.
using Calls = std::map<std::string, std::function<abi::Result(Words& words)>>;

/// What an argument points to.
template <class T>
T& at(std::uint64_t word) {
  return *reinterpret_cast<T*>(word);
}

}  // namespace plugfest::mutants
