// Gives a function more than one versioned name, in assembler directives that GCC and Clang both take on every
// architecture.
#pragma once

/// Exports `target` as `name` followed by `version`, where version is "@NODE" (found only by programs linked against
/// NODE) or
/// "@@NODE" (also what a link finds today). `alias`: a name of its own that the assembler needs for each version.
/// The node must be in libibverbs.map.
#define PLUGFEST_SYMBOL_VERSION(target, alias, name, version) \
  __asm__(".globl " #alias "\n.set " #alias ", " #target "\n.symver " #alias ", " #name version "\n")
