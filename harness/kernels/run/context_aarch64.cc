// Source: Procedure Call Standard for the Arm 64-bit Architecture, section 6: x19 to x30 and the low halves of v8 to
// v15 belong to the caller.
#if defined(__aarch64__)
#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "harness/kernels/run/context.h"

asm(R"(
  .text
  .globl plugfest_kernels_switch
  .hidden plugfest_kernels_switch
  .type plugfest_kernels_switch, %function
plugfest_kernels_switch:
  sub sp, sp, #160
  stp x29, x30, [sp, #0]
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x29, x30, [sp, #0]
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size plugfest_kernels_switch, . - plugfest_kernels_switch
)");

namespace plugfest::kernels {

Context prepare(std::byte* top, void (*entry)()) {
  // A frame pointer (x29) of 0 ends the chain of frames. x30 is where the switch returns to.
  std::array<std::uint64_t, 20> frame{};
  frame[1] = reinterpret_cast<std::uint64_t>(entry);
  std::byte* const context = top - sizeof(frame);
  std::memcpy(context, frame.data(), sizeof(frame));
  return context;
}

Saved saved_by(Context context) {
  std::array<const std::byte*, 2> frame{};
  std::memcpy(frame.data(), context, sizeof(frame));
  return {frame[1], frame[0]};
}

Saved interrupted(const void* ucontext) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(ucontext)->uc_mcontext;
  return {reinterpret_cast<const void*>(registers.pc), reinterpret_cast<const std::byte*>(registers.regs[29])};
}

}  // namespace plugfest::kernels
#endif
