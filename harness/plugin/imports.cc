#include "harness/plugin/imports.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace plugfest::plugin {
namespace {

// The relocations of pointers to imported functions.
#if defined(__x86_64__)
constexpr unsigned kJumpSlot = R_X86_64_JUMP_SLOT, kGlobalData = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr unsigned kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobalData = R_AARCH64_GLOB_DAT;
#else
constexpr unsigned kJumpSlot = 0, kGlobalData = 0;
#endif

using Relocation = ElfW(Rela);
using Symbol = ElfW(Sym);
using Entry = ElfW(Dyn);

}  // namespace

bool redirect_import(void* library, const char* function, const void* target) {
  const auto* const map = static_cast<const link_map*>(library);
  const char* strings = nullptr;
  const Symbol* symbols = nullptr;
  struct Table {
    const Relocation* begin = nullptr;
    std::size_t bytes = 0;
  } tables[2];
  // glibc has added the load address to these addresses.
  for (const Entry* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto* const address = reinterpret_cast<const void*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) strings = static_cast<const char*>(address);
    if (entry->d_tag == DT_SYMTAB) symbols = static_cast<const Symbol*>(address);
    if (entry->d_tag == DT_JMPREL) tables[0].begin = static_cast<const Relocation*>(address);
    if (entry->d_tag == DT_PLTRELSZ) tables[0].bytes = entry->d_un.d_val;
    if (entry->d_tag == DT_RELA) tables[1].begin = static_cast<const Relocation*>(address);
    if (entry->d_tag == DT_RELASZ) tables[1].bytes = entry->d_un.d_val;
  }
  bool found = false;
  for (const Table& table : tables) {
    for (std::size_t i = 0; table.begin != nullptr && i < table.bytes / sizeof *table.begin; ++i) {
      const auto type = ELF64_R_TYPE(table.begin[i].r_info);
      if (type != kJumpSlot && type != kGlobalData) continue;
      if (std::strcmp(strings + symbols[ELF64_R_SYM(table.begin[i].r_info)].st_name, function) != 0) continue;
      auto* const slot = reinterpret_cast<const void**>(map->l_addr + table.begin[i].r_offset);
      const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
      void* const pages = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(slot) / page * page);
      // The page stays writable: whether it was is unknown.
      if (::mprotect(pages, page, PROT_READ | PROT_WRITE) != 0) return false;
      *slot = target;
      found = true;
    }
  }
  if (!found) errno = ENOENT;
  return found;
}

}  // namespace plugfest::plugin
