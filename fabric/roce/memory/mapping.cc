#include "fabric/roce/memory/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>

#include "fabric/system/file.h"
#include "fabric/system/number.h"

namespace plugfest::roce {
namespace {

// Linux 5.14. Older kernels answer EINVAL, and then the maps decide.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

// Longer ranges may be sparse, and are not populated. Reading the maps takes longer than to populate so many pages.
constexpr std::size_t kMaxPopulated = 64 * 1024;

struct Mapping {
  std::uintptr_t begin = 0, end = 0;
  bool readable = false, writable = false;
};

// Parses "7f0c-7f1d rw-p …".
std::optional<Mapping> parse(std::string_view line) {
  Mapping mapping;
  const char* const end = line.data() + line.size();
  std::from_chars_result parsed = std::from_chars(line.data(), end, mapping.begin, 16);
  if (parsed.ec != std::errc() || parsed.ptr == end) return std::nullopt;
  parsed = std::from_chars(parsed.ptr + 1, end, mapping.end, 16);
  if (parsed.ec != std::errc() || end - parsed.ptr < 3) return std::nullopt;
  mapping.readable = parsed.ptr[1] == 'r';
  mapping.writable = parsed.ptr[2] == 'w';
  return mapping;
}

// Calls `visit` for each mapping, in the order of addresses, until it returns false. False if the maps cannot be read.
template <typename Visit>
bool visit_mappings(Visit visit) {
  const Descriptor file(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  char text[16 * 1024];
  std::size_t held = 0;
  for (;;) {
    const ssize_t size = read(file.get(), text + held, sizeof(text) - held);
    if (size < 0) return false;
    if (size == 0) return true;
    held += static_cast<std::size_t>(size);
    std::string_view rest(text, held);
    for (std::size_t end = 0; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1))
      if (const auto mapping = parse(rest.substr(0, end)); mapping && !visit(*mapping)) return true;
    held = rest.size();
    std::memmove(text, rest.data(), held);
  }
}

bool maps_allow(std::uintptr_t begin, std::uintptr_t end, bool write) {
  std::uintptr_t next = begin;
  const bool known = visit_mappings([&](const Mapping& mapping) {
    if (mapping.end <= next) return true;
    if (mapping.begin > next || !mapping.readable || (write && !mapping.writable)) return false;
    next = mapping.end;
    return next < end;
  });
  return !known || next >= end;
}

}  // namespace

bool can_access(const void* address, std::size_t length, bool write) {
  if (length == 0) return true;
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t begin = first / page * page;
  if (length <= kMaxPopulated) {
    const std::size_t whole = round_up(first - begin + length, page);
    if (madvise(reinterpret_cast<void*>(begin), whole, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
      return true;
  }
  return maps_allow(begin, first + length, write);
}

}  // namespace plugfest::roce
