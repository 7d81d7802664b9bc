// Accesses to memory that threads share: atomic functions, fences and loads. Blocks run in parallel, so all are atomic
// on the host too. Source: CUDA C++ Programming Guide 13.0, sections 10.5 and 10.14.
#pragma once

#include <cstring>
#include <type_traits>

#include "plugfest/accesses.h"
#include "plugfest/warp.h"
#include "plugfest_kernel.h"

namespace plugfest::kernels {

/// Orders of accesses, with the numbers of std::memory_order.
inline constexpr int kRelaxed = __ATOMIC_RELAXED;
inline constexpr int kAcquire = __ATOMIC_ACQUIRE;
inline constexpr int kRelease = __ATOMIC_RELEASE;
inline constexpr int kAcquireRelease = __ATOMIC_ACQ_REL;
inline constexpr int kSequential = __ATOMIC_SEQ_CST;

/// The unsigned type of a size in bytes.
template <std::size_t bytes>
using Word = std::conditional_t<
    bytes == 1, std::uint8_t,
    std::conditional_t<bytes == 2, std::uint16_t, std::conditional_t<bytes == 4, std::uint32_t, std::uint64_t>>>;

/// Loads a value of at most 8 bytes.
template <typename T>
inline T load(const volatile void* address, int order = kRelaxed) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "an atomic load has at most 8 bytes");
  using Bits = Word<sizeof(T)>;
  const auto* const at = static_cast<const volatile Bits*>(address);
  const Bits bits = order == kRelaxed      ? __atomic_load_n(at, __ATOMIC_RELAXED)
                    : order == kSequential ? __atomic_load_n(at, __ATOMIC_SEQ_CST)
                                           : __atomic_load_n(at, __ATOMIC_ACQUIRE);
  plugfest_kernel_loaded(address, sizeof(T), bits);
  return from_word<T>(bits);
}

/// Stores a value of at most 8 bytes.
template <typename T>
inline void store(volatile void* address, const T& value, int order = kRelaxed) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "an atomic store has at most 8 bytes");
  using Bits = Word<sizeof(T)>;
  auto* const at = static_cast<volatile Bits*>(address);
  const Bits bits = static_cast<Bits>(to_word(value));
  if (order == kRelaxed)
    __atomic_store_n(at, bits, __ATOMIC_RELAXED);
  else if (order == kSequential)
    __atomic_store_n(at, bits, __ATOMIC_SEQ_CST);
  else
    __atomic_store_n(at, bits, __ATOMIC_RELEASE);
}

/// Replaces a value by `change(value)`. Returns the old value.
template <typename T, typename Change>
inline T update(volatile void* address, Change change, int order = kSequential) {
  using Bits = Word<sizeof(T)>;
  auto* const at = static_cast<volatile Bits*>(address);
  Bits old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (true) {
    const T value = from_word<T>(old);
    const Bits wanted = static_cast<Bits>(to_word<T>(change(value)));
    if (!__atomic_compare_exchange_n(at, &old, wanted, false, order, __ATOMIC_RELAXED)) continue;
    plugfest_kernel_loaded(address, sizeof(T), old);  // a thread may wait for a lock with atomicCAS or atomicExch
    return value;
  }
}

/// For parameters whose type the first argument decides.
template <typename T>
struct Same {
  using Type = T;
};

}  // namespace plugfest::kernels

// atomicAdd(T*, T), atomicAdd_system and atomicAdd_block: all scopes are the same here.
#define PLUGFEST_ATOMIC_OF_SCOPE(name, expression)                                           \
  template <typename T>                                                                      \
  inline T name(T* address, typename plugfest::kernels::Same<T>::Type operand) {             \
    return plugfest::kernels::update<T>(                                                     \
        address, [operand](T old) -> T { return expression; }, plugfest::kernels::kRelaxed); \
  }
#define PLUGFEST_ATOMIC(name, expression)            \
  PLUGFEST_ATOMIC_OF_SCOPE(name, expression)         \
  PLUGFEST_ATOMIC_OF_SCOPE(name##_block, expression) \
  PLUGFEST_ATOMIC_OF_SCOPE(name##_system, expression)
PLUGFEST_ATOMIC(atomicAdd, old + operand)
PLUGFEST_ATOMIC(atomicSub, old - operand)
PLUGFEST_ATOMIC(atomicExch, (static_cast<void>(old), operand))
PLUGFEST_ATOMIC(atomicMin, operand < old ? operand : old)
PLUGFEST_ATOMIC(atomicMax, old < operand ? operand : old)
PLUGFEST_ATOMIC(atomicAnd, old& operand)
PLUGFEST_ATOMIC(atomicOr, old | operand)
PLUGFEST_ATOMIC(atomicXor, old ^ operand)
PLUGFEST_ATOMIC(atomicInc, old >= operand ? T(0) : T(old + 1))
PLUGFEST_ATOMIC(atomicDec, old == 0 || old > operand ? operand : T(old - 1))
#undef PLUGFEST_ATOMIC
#undef PLUGFEST_ATOMIC_OF_SCOPE

template <typename T>
inline T atomicCAS(T* address, typename plugfest::kernels::Same<T>::Type expected,
                   typename plugfest::kernels::Same<T>::Type wanted) {
  return plugfest::kernels::update<T>(
      address, [=](T old) { return old == expected ? wanted : old; }, plugfest::kernels::kRelaxed);
}
template <typename T>
inline T atomicCAS_block(T* address, typename plugfest::kernels::Same<T>::Type expected,
                         typename plugfest::kernels::Same<T>::Type wanted) {
  return atomicCAS(address, expected, wanted);
}
template <typename T>
inline T atomicCAS_system(T* address, typename plugfest::kernels::Same<T>::Type expected,
                          typename plugfest::kernels::Same<T>::Type wanted) {
  return atomicCAS(address, expected, wanted);
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
// The threads of a block run one after the other.
inline void __threadfence_block() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Loads and stores with hints for the caches, of any type.
#define PLUGFEST_LOAD(name)         \
  template <typename T>             \
  inline T name(const T* address) { \
    return *address;                \
  }
#define PLUGFEST_STORE(name)                                                      \
  template <typename T>                                                           \
  inline void name(T* address, typename plugfest::kernels::Same<T>::Type value) { \
    *address = value;                                                             \
  }
PLUGFEST_LOAD(__ldg)
PLUGFEST_LOAD(__ldca)
PLUGFEST_LOAD(__ldcg)
PLUGFEST_LOAD(__ldcs)
PLUGFEST_LOAD(__ldlu)
PLUGFEST_STORE(__stwb)
PLUGFEST_STORE(__stcg)
PLUGFEST_STORE(__stcs)
#undef PLUGFEST_LOAD
#undef PLUGFEST_STORE

/// __stwt and __ldcv bypass the caches: programs talk with the host through them. The words of 8 bytes become visible
/// in the order of their addresses. `caller`: NCCL posts puts in postGfd(), which some compilers call "postGfd<T>".
template <typename T>
inline void __stwt(T* address, typename plugfest::kernels::Same<T>::Type value,
                   const char* caller = __builtin_FUNCTION()) {
  constexpr std::size_t kStep = sizeof(T) < 8 ? sizeof(T) : 8;
  static_assert(sizeof(T) % kStep == 0);
  for (std::size_t at = 0; at < sizeof(T); at += kStep) {
    plugfest::kernels::Word<kStep> word;
    std::memcpy(&word, reinterpret_cast<const char*>(&value) + at, kStep);
    if constexpr (kStep == 8) {
      if (plugfest_kernel_is_weak && std::strncmp(caller, "postGfd", 7) == 0) {
        plugfest_kernel_post(reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(address) + at), word);
        continue;
      }
    }
    plugfest::kernels::store(reinterpret_cast<char*>(address) + at, word, plugfest::kernels::kRelease);
  }
}
template <typename T>
inline T __ldcv(const T* address) {
  constexpr std::size_t kStep = sizeof(T) < 8 ? sizeof(T) : 8;
  static_assert(sizeof(T) % kStep == 0);
  T value;
  for (std::size_t at = 0; at < sizeof(T); at += kStep) {
    const auto word =
        plugfest::kernels::load<plugfest::kernels::Word<kStep>>(reinterpret_cast<const char*>(address) + at);
    std::memcpy(reinterpret_cast<char*>(&value) + at, &word, kStep);
  }
  return value;
}
