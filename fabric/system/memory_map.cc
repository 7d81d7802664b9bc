#include "fabric/system/memory_map.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include "fabric/system/file.h"

namespace plugfest {
namespace {

// Parses "7f0c-7f1d rw-p 00001000 08:02 135522   /usr/lib/libc.so.6".
std::optional<MemoryMapping> parse(std::string_view line) {
  MemoryMapping mapping;
  const char* const end = line.data() + line.size();
  std::from_chars_result parsed = std::from_chars(line.data(), end, mapping.begin, 16);
  if (parsed.ec != std::errc() || parsed.ptr == end) return std::nullopt;
  parsed = std::from_chars(parsed.ptr + 1, end, mapping.end, 16);
  if (parsed.ec != std::errc() || end - parsed.ptr < 4) return std::nullopt;
  mapping.readable = parsed.ptr[1] == 'r';
  mapping.writable = parsed.ptr[2] == 'w';
  mapping.executable = parsed.ptr[3] == 'x';
  if (const std::size_t file = line.find(" /"); file != line.npos) mapping.file = line.substr(file + 1);
  return mapping;
}

// struct procmap_query of <linux/fs.h> since Linux 6.11.
struct ProcmapQuery {
  std::uint64_t size = sizeof(ProcmapQuery);
  std::uint64_t flags = 0;
  std::uint64_t address = 0;
  std::uint64_t begin = 0, end = 0, access = 0;
  std::uint64_t unused[4] = {};  // page size, offset, inode, device
  std::uint32_t name_size = 0, build_id_size = 0;
  std::uint64_t name_address = 0, build_id_address = 0;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kQuery = _IOWR('f', 17, ProcmapQuery);
constexpr std::uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kContainingOrNext = 16;

}  // namespace

bool visit_mappings(const std::string& maps, const std::function<bool(const MemoryMapping&)>& visit) {
  const Descriptor file(open(maps.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  char text[16 * 1024];  // longer than a line
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

bool visit_own_mappings(std::uint64_t first, const std::function<bool(const MemoryMapping&)>& visit) {
  const Descriptor file(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  for (;;) {
    ProcmapQuery query;
    query.flags = kContainingOrNext;
    query.address = first;
    if (ioctl(file.get(), kQuery, &query) != 0) {
      if (errno == ENOENT) return true;
      break;  // an older kernel
    }
    const MemoryMapping mapping = {.begin = query.begin,
                                   .end = query.end,
                                   .readable = (query.access & kReadable) != 0,
                                   .writable = (query.access & kWritable) != 0,
                                   .executable = (query.access & kExecutable) != 0,
                                   .file = {}};
    if (!visit(mapping)) return true;
    first = mapping.end;
  }
  return visit_mappings("/proc/self/maps",
                        [&](const MemoryMapping& mapping) { return mapping.end <= first || visit(mapping); });
}

}  // namespace plugfest
