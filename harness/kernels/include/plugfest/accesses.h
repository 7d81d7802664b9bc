// What the compiled code calls before each access to memory: with -fsanitize=thread, compilers call these functions,
// which tell the execution of the kernel instead of ThreadSanitizer. Each translation unit has its own copy, so that a
// program may also contain code that is really checked by ThreadSanitizer. Source: gcc/sanitizer.def of GCC 12; the
// orders are numbered as in std::memory_order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugfest_kernel.h"

extern "C" {

// Clang replaces atomic operations also in functions with no_sanitize("thread").
#if defined(__clang__)
#define PLUGFEST_PLAIN disable_sanitizer_instrumentation
#else
#define PLUGFEST_PLAIN no_sanitize("thread")
#endif
#define PLUGFEST_HOOK __attribute__((weak, visibility("hidden"), PLUGFEST_PLAIN, used))

#define PLUGFEST_ACCESSES_OF_SIZE(bytes)                                                            \
  PLUGFEST_HOOK void __tsan_read##bytes(void* address) {                                            \
    if (plugfest_kernel_is_weak) plugfest_kernel_before_load(address, bytes);                       \
  }                                                                                                 \
  PLUGFEST_HOOK void __tsan_write##bytes(void* address) {                                           \
    if (plugfest_kernel_is_weak) plugfest_kernel_before_store(address, bytes);                      \
  }                                                                                                 \
  PLUGFEST_HOOK void __tsan_unaligned_read##bytes(void* address) { __tsan_read##bytes(address); }   \
  PLUGFEST_HOOK void __tsan_unaligned_write##bytes(void* address) { __tsan_write##bytes(address); } \
  PLUGFEST_HOOK void __tsan_volatile_write##bytes(void* address) {                                  \
    if (plugfest_kernel_is_weak) plugfest_kernel_before_load(address, bytes);                       \
  }                                                                                                 \
  PLUGFEST_HOOK void __tsan_unaligned_volatile_write##bytes(void* address) { __tsan_volatile_write##bytes(address); }
PLUGFEST_ACCESSES_OF_SIZE(1)
PLUGFEST_ACCESSES_OF_SIZE(2)
PLUGFEST_ACCESSES_OF_SIZE(4)
PLUGFEST_ACCESSES_OF_SIZE(8)
PLUGFEST_ACCESSES_OF_SIZE(16)
#undef PLUGFEST_ACCESSES_OF_SIZE

PLUGFEST_HOOK void __tsan_read_range(void* address, unsigned long bytes) {
  if (plugfest_kernel_is_weak) plugfest_kernel_before_load(address, bytes);
}
// Longer stores than 16 bytes become visible at once.
PLUGFEST_HOOK void __tsan_write_range(void* address, unsigned long bytes) {
  if (plugfest_kernel_is_weak) plugfest_kernel_before_load(address, bytes);
}

// A loop that reads a volatile word waits for it.
#define PLUGFEST_VOLATILE(bytes, bits)                                                            \
  PLUGFEST_HOOK void __tsan_volatile_read##bytes(void* address) {                                 \
    if (plugfest_kernel_is_weak) plugfest_kernel_before_load(address, bytes);                     \
    plugfest_kernel_loaded(address, bytes, *static_cast<volatile std::uint##bits##_t*>(address)); \
  }                                                                                               \
  PLUGFEST_HOOK void __tsan_unaligned_volatile_read##bytes(void* address) { __tsan_volatile_read##bytes(address); }
PLUGFEST_VOLATILE(1, 8)
PLUGFEST_VOLATILE(2, 16)
PLUGFEST_VOLATILE(4, 32)
PLUGFEST_VOLATILE(8, 64)
#undef PLUGFEST_VOLATILE
PLUGFEST_HOOK void __tsan_volatile_read16(void* address) { __tsan_volatile_read8(address); }
PLUGFEST_HOOK void __tsan_unaligned_volatile_read16(void* address) { __tsan_volatile_read8(address); }

PLUGFEST_HOOK void __tsan_init() {}
PLUGFEST_HOOK void __tsan_func_entry(void*) {}
PLUGFEST_HOOK void __tsan_func_exit() {}
PLUGFEST_HOOK void __tsan_vptr_update(void*, void*) {}
PLUGFEST_HOOK void __tsan_vptr_read(void*) {}

/// Call it before an atomic operation of the host's language, with its order.
PLUGFEST_HOOK void plugfest_before_atomic(const volatile void* address, std::size_t bytes, int order) {
  if (!plugfest_kernel_is_weak) return;
  plugfest_kernel_before_load(address, bytes);
  if (order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST) plugfest_kernel_release();
}

#define PLUGFEST_ATOMIC_CHANGE(bits, name)                                                                       \
  PLUGFEST_HOOK std::uint##bits##_t __tsan_atomic##bits##_##name(volatile void* at, std::uint##bits##_t operand, \
                                                                 int order) {                                    \
    plugfest_before_atomic(at, bits / 8, order);                                                                 \
    return __atomic_##name(static_cast<volatile std::uint##bits##_t*>(at), operand, __ATOMIC_SEQ_CST);           \
  }
#define PLUGFEST_EXCHANGE(bits, kind)                                                                                \
  PLUGFEST_HOOK bool __tsan_atomic##bits##_compare_exchange_##kind(volatile void* at, void* expected,                \
                                                                   std::uint##bits##_t wanted, int order, int) {     \
    plugfest_before_atomic(at, bits / 8, order);                                                                     \
    return __atomic_compare_exchange_n(static_cast<volatile std::uint##bits##_t*>(at),                               \
                                       static_cast<std::uint##bits##_t*>(expected), wanted, false, __ATOMIC_SEQ_CST, \
                                       __ATOMIC_SEQ_CST);                                                            \
  }
// What Clang calls. Returns the old value.
#define PLUGFEST_EXCHANGE_OF_VALUES(bits)                                                                          \
  PLUGFEST_HOOK std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                    \
      volatile void* at, std::uint##bits##_t expected, std::uint##bits##_t wanted, int order, int failure_order) { \
    __tsan_atomic##bits##_compare_exchange_strong(at, &expected, wanted, order, failure_order);                    \
    return expected;                                                                                               \
  }
#define PLUGFEST_ATOMICS_OF_SIZE(bits)                                                                           \
  PLUGFEST_HOOK std::uint##bits##_t __tsan_atomic##bits##_load(const volatile void* at, int order) {             \
    plugfest_before_atomic(at, bits / 8, __ATOMIC_RELAXED);                                                      \
    static_cast<void>(order);                                                                                    \
    const auto value = __atomic_load_n(static_cast<const volatile std::uint##bits##_t*>(at), __ATOMIC_SEQ_CST);  \
    plugfest_kernel_loaded(at, bits / 8, value);                                                                 \
    return value;                                                                                                \
  }                                                                                                              \
  PLUGFEST_HOOK void __tsan_atomic##bits##_store(volatile void* at, std::uint##bits##_t value, int order) {      \
    plugfest_before_atomic(at, bits / 8, order);                                                                 \
    __atomic_store_n(static_cast<volatile std::uint##bits##_t*>(at), value, __ATOMIC_SEQ_CST);                   \
  }                                                                                                              \
  PLUGFEST_HOOK std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile void* at, std::uint##bits##_t value, \
                                                                   int order) {                                  \
    plugfest_before_atomic(at, bits / 8, order);                                                                 \
    return __atomic_exchange_n(static_cast<volatile std::uint##bits##_t*>(at), value, __ATOMIC_SEQ_CST);         \
  }                                                                                                              \
  PLUGFEST_ATOMIC_CHANGE(bits, fetch_add)                                                                        \
  PLUGFEST_ATOMIC_CHANGE(bits, fetch_sub)                                                                        \
  PLUGFEST_ATOMIC_CHANGE(bits, fetch_and)                                                                        \
  PLUGFEST_ATOMIC_CHANGE(bits, fetch_or)                                                                         \
  PLUGFEST_ATOMIC_CHANGE(bits, fetch_xor)                                                                        \
  PLUGFEST_ATOMIC_CHANGE(bits, fetch_nand)                                                                       \
  PLUGFEST_EXCHANGE(bits, strong)                                                                                \
  PLUGFEST_EXCHANGE(bits, weak)                                                                                  \
  PLUGFEST_EXCHANGE_OF_VALUES(bits)
PLUGFEST_ATOMICS_OF_SIZE(8)
PLUGFEST_ATOMICS_OF_SIZE(16)
PLUGFEST_ATOMICS_OF_SIZE(32)
PLUGFEST_ATOMICS_OF_SIZE(64)
#undef PLUGFEST_ATOMICS_OF_SIZE
#undef PLUGFEST_EXCHANGE_OF_VALUES
#undef PLUGFEST_EXCHANGE
#undef PLUGFEST_ATOMIC_CHANGE

PLUGFEST_HOOK void __tsan_atomic_thread_fence(int order) {
  if (plugfest_kernel_is_weak && order != __ATOMIC_RELAXED && order != __ATOMIC_ACQUIRE) plugfest_kernel_release();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
PLUGFEST_HOOK void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

#undef PLUGFEST_HOOK
#undef PLUGFEST_PLAIN
}
