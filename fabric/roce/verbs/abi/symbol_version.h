// Symbol versions by assembler directives that GCC and Clang accept on all architectures.
#pragma once

/// Exports `target` as `name` with `version`: "@NODE" (only for programs linked against NODE) or "@@NODE" (the default
/// when linking). `alias`: a unique symbol that the assembler needs for each version. NODE must be in libibverbs.map.
#define PLUGFEST_SYMBOL_VERSION(target, alias, name, version) \
  __asm__(".globl " #alias "\n.set " #alias ", " #target "\n.symver " #alias ", " #name version "\n")
