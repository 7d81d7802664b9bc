// Changes between stacks: the part of fibers that depends on the processor. One source for each architecture.
#pragma once

#include <cstddef>

namespace plugfest::kernels {

/// The stack pointer of suspended code, whose registers are on its stack.
using Context = void*;

/// A context that calls `entry` on the stack that ends at `top`, which is aligned to 16 bytes. `entry` never returns.
Context prepare(std::byte* top, void (*entry)());

/// The place at which suspended code continues.
struct Saved {
  const void* next;        ///< address of the instruction
  const std::byte* frame;  ///< its frame pointer: the address of the previous one, then of the return address
};
Saved saved_by(Context context);
/// The place at which code that a signal has interrupted continues. `ucontext`: the third argument of the signal's
/// handler.
Saved interrupted(const void* ucontext);

}  // namespace plugfest::kernels

extern "C" {
/// Saves the running code in `*saved` and continues `next`. Returns when another call continues `*saved`. Keeps the
/// registers that the calling convention makes the callee keep, and the signal mask.
void plugfest_kernels_switch(plugfest::kernels::Context* saved, plugfest::kernels::Context next);
}
