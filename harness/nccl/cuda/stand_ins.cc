// The table of the stand-ins for the CUDA runtime, and traps for the functions that have none.
#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "fabric/system/file.h"
#include "harness/nccl/cuda/refuse.h"
#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl {
namespace {

[[noreturn]] void trapped(const std::string* name) {
  refuse(fmt::format("{}: no stand-in for this function of CUDA", *name));
}

// Puts the address of the name into the first argument's register and jumps to trapped(). Both addresses are filled in.
#if defined(__x86_64__)
// movabs rdi, NAME; jmp *[rip+0]; TARGET. The caller's return address is on the stack, as after a call.
constexpr unsigned char kCode[] = {0x48, 0xbf, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
constexpr std::size_t kNameAt = 2, kTargetAt = 16;
#elif defined(__aarch64__)
// ldr x0, .+16; ldr x16, .+20; br x16; nop; NAME; TARGET.
constexpr unsigned char kCode[] = {0x80, 0x00, 0x00, 0x58, 0xb0, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1f,
                                   0xd6, 0x1f, 0x20, 0x03, 0xd5, 0,    0,    0,    0,    0,    0,
                                   0,    0,    0,    0,    0,    0,    0,    0,    0,    0};
constexpr std::size_t kNameAt = 16, kTargetAt = 24;
#else
constexpr unsigned char kCode[] = {0};
constexpr std::size_t kNameAt = 0, kTargetAt = 0;
#endif
constexpr bool kKnown = sizeof(kCode) > 1;
constexpr std::size_t kPages = std::size_t{64} << 10;

}  // namespace

void* make_trap(const std::string& name) {
  static std::mutex mutex;
  static unsigned char* pages = nullptr;
  static std::size_t used = kPages;
  if (!kKnown) return nullptr;
  const std::lock_guard lock(mutex);
  if (used + sizeof(kCode) > kPages) {
    void* const fresh = ::mmap(nullptr, kPages, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) throw_errno("map memory for traps");
    pages = static_cast<unsigned char*>(fresh);
    used = 0;
  }
  // Some systems forbid pages that are writable and executable at once.
  if (::mprotect(pages, kPages, PROT_READ | PROT_WRITE) != 0) throw_errno("change the protection of traps");
  unsigned char* const trap = pages + used;
  const auto target = reinterpret_cast<std::uint64_t>(&trapped);
  const auto text = reinterpret_cast<std::uint64_t>(new std::string(name));  // used until the process ends
  std::memcpy(trap, kCode, sizeof(kCode));
  std::memcpy(trap + kNameAt, &text, sizeof(text));
  std::memcpy(trap + kTargetAt, &target, sizeof(target));
  used += 32;
  if (::mprotect(pages, kPages, PROT_READ | PROT_EXEC) != 0) throw_errno("change the protection of traps");
  __builtin___clear_cache(reinterpret_cast<char*>(trap), reinterpret_cast<char*>(trap) + sizeof(kCode));
  return trap;
}

}  // namespace plugfest::nccl

namespace plugfest::nccl::cuda {

std::span<const StandIn> stand_ins() {
  static const std::array table = {
#define FUNCTION(name, ...) StandIn{#name, reinterpret_cast<const void*>(&::name)},
#include "harness/nccl/cuda/functions.def"
#undef FUNCTION
  };
  return table;
}

}  // namespace plugfest::nccl::cuda

extern "C" {
#define NAME(name) \
  [[noreturn]] void name() { plugfest::nccl::refuse(#name ": no stand-in for this function of CUDA"); }
#include "harness/nccl/cuda/other_names.def"
#undef NAME
}
