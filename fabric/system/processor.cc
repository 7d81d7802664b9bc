#include "fabric/system/processor.h"

namespace plugfest {

#if defined(__x86_64__)

namespace {

[[gnu::target("avx")]] void zero_upper_halves() { __builtin_ia32_vzeroupper(); }

}  // namespace

void spin_pause() { __builtin_ia32_pause(); }

void clear_upper_vector_halves() {
  static const bool has_them = __builtin_cpu_supports("avx") != 0;
  if (has_them) zero_upper_halves();
}

#elif defined(__aarch64__)

void spin_pause() { asm volatile("yield"); }
void clear_upper_vector_halves() {}

#else

void spin_pause() {}
void clear_upper_vector_halves() {}

#endif

}  // namespace plugfest
