#include "harness/plugin/nccl/redirect.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace plugfest::plugin {
namespace {

#if defined(__x86_64__)
// jmp *[rip+0]; the address follows.
constexpr std::array<unsigned char, 6> kJump = {0xff, 0x25, 0, 0, 0, 0};
#elif defined(__aarch64__)
// ldr x16, .+8 ; br x16; the address follows.
constexpr std::array<unsigned char, 8> kJump = {0x50, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1f, 0xd6};
#else
constexpr std::array<unsigned char, 0> kJump = {};
#endif

}  // namespace

bool redirect(void* function, const void* target) {
  if constexpr (kJump.empty()) {
    errno = ENOSYS;
    return false;
  } else {
    constexpr std::size_t kSize = kJump.size() + sizeof target;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(function);
    const std::uintptr_t begin = address / page * page;
    const std::size_t length = address + kSize - begin;
    void* const pages = reinterpret_cast<void*>(begin);
    // Some systems forbid pages that are writable and executable at once.
    if (::mprotect(pages, length, PROT_READ | PROT_WRITE) != 0) return false;
    auto* const bytes = static_cast<unsigned char*>(function);
    std::memcpy(bytes, kJump.data(), kJump.size());
    std::memcpy(bytes + kJump.size(), &target, sizeof target);
    __builtin___clear_cache(reinterpret_cast<char*>(bytes), reinterpret_cast<char*>(bytes) + kSize);
    return ::mprotect(pages, length, PROT_READ | PROT_EXEC) == 0;
  }
}

}  // namespace plugfest::plugin
