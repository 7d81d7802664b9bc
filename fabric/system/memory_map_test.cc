#include "fabric/system/memory_map.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "fabric/system/testing.h"

namespace plugfest {
namespace {

// The access to, and the file of, each mapping until `last`.
std::vector<std::string> mappings_until(std::uint64_t last, const std::string& maps) {
  std::vector<std::string> found;
  EXPECT_TRUE(visit_mappings(maps, [&](const MemoryMapping& mapping) {
    found.push_back(std::string(mapping.readable ? "r" : "-") + (mapping.writable ? "w" : "-") +
                    (mapping.executable ? "x " : "- ") + std::string(mapping.file));
    return mapping.begin != last;
  }));
  return found;
}

TEST(VisitMappings, GivesAccessAndFileUntilTheVisitorHasEnough) {
  const ScratchFolder folder;
  const std::string maps = folder / "maps";
  std::ofstream(maps) << "1000-2000 r-xp 00000000 08:02 17        /lib/a b.so\n"
                         "not a mapping\n"
                         "2000-3000 rw-p 00000000 00:00 0 \n"
                         "7fff0000-7fff1000 ---p 00000000 00:00 0         [stack]\n";
  EXPECT_THAT(mappings_until(0, maps), testing::ElementsAre("r-x /lib/a b.so", "rw- ", "--- "));
  EXPECT_THAT(mappings_until(0x2000, maps), testing::ElementsAre("r-x /lib/a b.so", "rw- "));
}

TEST(VisitMappings, SaysThatAFileCannotBeRead) {
  EXPECT_FALSE(visit_mappings("/proc/0/maps", [](const MemoryMapping&) { return true; }));
}

TEST(VisitOwnMappings, BeginsWithTheMappingThatContainsTheAddress) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  char* const pages =
      static_cast<char*>(mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  mprotect(pages + page, page, PROT_READ);
  mprotect(pages + 2 * page, page, PROT_NONE);
  std::vector<std::string> found;
  EXPECT_TRUE(visit_own_mappings(reinterpret_cast<std::uint64_t>(pages + page + 1), [&](const MemoryMapping& mapping) {
    found.push_back(std::string(mapping.readable ? "r" : "-") + (mapping.writable ? "w" : "-") +
                    (mapping.executable ? "x" : "-"));
    return found.size() < 3;
  }));
  EXPECT_THAT(found, testing::ElementsAre("r--", "---", "rw-"));
  munmap(pages, 4 * page);
}

}  // namespace
}  // namespace plugfest
