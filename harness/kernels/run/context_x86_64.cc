// Source: System V ABI, AMD64 supplement 1.0, section 3.2: rbx, rbp, rsp and r12 to r15 belong to the caller.
#if defined(__x86_64__)
#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "harness/kernels/run/context.h"

asm(R"(
  .text
  .globl plugfest_kernels_switch
  .hidden plugfest_kernels_switch
  .type plugfest_kernels_switch, @function
plugfest_kernels_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size plugfest_kernels_switch, . - plugfest_kernels_switch
)");

namespace plugfest::kernels {

Context prepare(std::byte* top, void (*entry)()) {
  // r15, r14, r13, r12, rbx, rbp, the address of `entry`, and 0 as the return address of `entry`. A base pointer of 0
  // ends the chain of frames.
  const std::array<std::uint64_t, 8> frame = {0, 0, 0, 0, 0, 0, reinterpret_cast<std::uint64_t>(entry), 0};
  std::byte* const context = top - sizeof(frame);
  std::memcpy(context, frame.data(), sizeof(frame));
  return context;
}

Saved saved_by(Context context) {
  std::array<const std::byte*, 7> frame{};
  std::memcpy(frame.data(), context, sizeof(frame));
  return {frame[6], frame[5]};
}

Saved interrupted(const void* ucontext) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(ucontext)->uc_mcontext;
  return {reinterpret_cast<const void*>(registers.gregs[REG_RIP]),
          reinterpret_cast<const std::byte*>(registers.gregs[REG_RBP])};
}

}  // namespace plugfest::kernels
#endif
