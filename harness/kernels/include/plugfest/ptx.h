// The functions to which the compiler front translates PTX. A register is a variable of the statement: an integer, a
// pointer, or a floating-point number. Source: PTX ISA 9.0, chapter 9.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "plugfest/atomics.h"
#include "plugfest/intrinsics.h"
#include "plugfest/warp.h"

namespace plugfest::kernels::ptx {

/// The value of a register as the instruction's type.
template <typename T, typename Register>
inline T get(const Register& value) {
  if constexpr (std::is_pointer_v<Register>) {
    static_assert(sizeof(T) == sizeof(Register), "an address has 64 bits");
    return static_cast<T>(reinterpret_cast<std::uintptr_t>(value));
  } else if constexpr (std::is_integral_v<T> && (std::is_integral_v<Register> || std::is_enum_v<Register>)) {
    return static_cast<T>(value);
  } else {
    static_assert(sizeof(T) == sizeof(Register), "the register and the instruction have different sizes");
    return from_word<T>(to_word(value));
  }
}

/// Gives a register a value of the instruction's type; extends integers as the type says.
template <typename Register, typename T>
inline void set(Register& target, const T& value) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<Register>) {
    static_assert(sizeof(T) <= sizeof(Register), "the register is smaller than the instruction's type");
    target = static_cast<Register>(value);
  } else {
    static_assert(sizeof(T) == sizeof(Register), "the register and the instruction have different sizes");
    target = from_word<Register>(to_word(value));
  }
}

/// The address in a register.
template <typename Register>
inline char* address(Register base, std::ptrdiff_t offset) {
  static_assert(sizeof(Register) == 8, "addresses have 64 bits here, even in shared memory");
  if constexpr (std::is_pointer_v<Register>)
    return reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(base)) + offset;
  else
    return reinterpret_cast<char*>(static_cast<std::uintptr_t>(base)) + offset;
}

/// ld: each 8 bytes at once, in the order of their addresses.
template <typename T, typename... Registers>
inline void load(const char* address, int order, Registers&... targets) {
  constexpr std::size_t kBytes = sizeof(T) * sizeof...(Registers), kStep = kBytes < 8 ? kBytes : 8;
  T values[sizeof...(Registers)];
  for (std::size_t at = 0; at < kBytes; at += kStep) {
    const auto word = kernels::load<Word<kStep>>(address + at, order);
    std::memcpy(reinterpret_cast<char*>(values) + at, &word, kStep);
  }
  const T* next = values;
  (set(targets, *next++), ...);
}

/// st: each 8 bytes at once, in the order of their addresses.
template <typename T, typename... Registers>
inline void store(char* address, int order, const Registers&... sources) {
  constexpr std::size_t kBytes = sizeof(T) * sizeof...(Registers), kStep = kBytes < 8 ? kBytes : 8;
  const T values[] = {get<T>(sources)...};
  for (std::size_t at = 0; at < kBytes; at += kStep) {
    Word<kStep> word;
    std::memcpy(&word, reinterpret_cast<const char*>(values) + at, kStep);
    // With more than 8 bytes, the later ones often say that the earlier ones are there.
    kernels::store(address + at, word, at > 0 && order == kRelaxed ? kRelease : order);
  }
}

#define PLUGFEST_OPERATION(name, expression) \
  struct name {                              \
    template <typename T>                    \
    T operator()(T a, T b) const {           \
      return static_cast<T>(expression);     \
    }                                        \
  };
PLUGFEST_OPERATION(Add, a + b)
PLUGFEST_OPERATION(Min, b < a ? b : a)
PLUGFEST_OPERATION(Max, a < b ? b : a)
PLUGFEST_OPERATION(And, a& b)
PLUGFEST_OPERATION(Or, a | b)
PLUGFEST_OPERATION(Xor, a ^ b)
PLUGFEST_OPERATION(Inc, a >= b ? T(0) : a + 1)
PLUGFEST_OPERATION(Dec, a == 0 || a > b ? b : a - 1)
PLUGFEST_OPERATION(Exchange, (static_cast<void>(a), b))
#undef PLUGFEST_OPERATION

/// red and atom. Returns the old value.
template <typename T, typename Operation, typename Register>
inline T update(Operation operation, char* address, const Register& operand) {
  return kernels::update<T>(address, [&](T old) { return operation(old, get<T>(operand)); });
}
template <typename T, typename Expected, typename Wanted>
inline T compare_and_swap(char* address, const Expected& expected, const Wanted& wanted) {
  return kernels::update<T>(address, [&](T old) { return old == get<T>(expected) ? get<T>(wanted) : old; });
}

/// mov with two halves. `Whole`: the instruction's type.
template <typename Whole, typename Target, typename Low, typename High>
inline void pack(Target& target, const Low& low, const High& high) {
  using Half = Word<sizeof(Whole) / 2>;
  set(target, static_cast<Whole>(static_cast<Whole>(get<Half>(high)) << (4 * sizeof(Whole)) | get<Half>(low)));
}
template <typename Whole, typename Source, typename Low, typename High>
inline void unpack(const Source& source, Low& low, High& high) {
  using Half = Word<sizeof(Whole) / 2>;
  const auto value = get<Whole>(source);
  set(low, static_cast<Half>(value));
  set(high, static_cast<Half>(value >> (4 * sizeof(Whole))));
}

inline unsigned warp_in_block() {
  const Index at = *plugfest_kernel_thread_index(), size = *plugfest_kernel_block_size();
  return (at.x + size.x * (at.y + size.y * at.z)) / kWarpSize;
}

}  // namespace plugfest::kernels::ptx

#include "plugfest/multimem.h"
