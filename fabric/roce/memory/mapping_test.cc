#include "fabric/roce/memory/mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

namespace plugfest::roce {
namespace {

const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// A mapping of whole pages.
class Pages {
 public:
  Pages(std::size_t count, int protection)
      : size_(count * kPage),
        bytes_(static_cast<std::byte*>(
            mmap(nullptr, size_, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~Pages() { munmap(bytes_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* page(std::size_t number) const { return bytes_ + number * kPage; }
  std::size_t size() const { return size_; }

 private:
  const std::size_t size_;
  std::byte* const bytes_;
};

// The number of pages of short ranges, which the kernel populates, and of long ones, which are looked up in the maps.
const std::vector<std::size_t> kCounts = {3, 100'000};

TEST(CanAccess, FindsMemoryOfTheHeapAndTheStack) {
  char stack = 0;
  const std::vector<char> heap(10'000'000);
  for (const bool write : {false, true}) {
    EXPECT_TRUE(can_access(&stack, 1, write));
    EXPECT_TRUE(can_access(heap.data(), heap.size(), write));
  }
  EXPECT_TRUE(can_access(nullptr, 0, true));
}

TEST(CanAccess, RefusesUnmappedMemory) {
  for (const std::size_t count : kCounts) {
    EXPECT_FALSE(can_access(nullptr, count * kPage, false));
    const Pages pages(count, PROT_READ | PROT_WRITE);
    EXPECT_TRUE(can_access(pages.page(0), pages.size(), true));
    munmap(pages.page(count / 2), kPage);
    EXPECT_FALSE(can_access(pages.page(0), pages.size(), false)) << "a hole";
    EXPECT_TRUE(can_access(pages.page(0), count / 2 * kPage, true)) << "up to the hole";
    EXPECT_FALSE(can_access(pages.page(0) + 1, count / 2 * kPage, false)) << "a byte of the hole";
  }
}

TEST(CanAccess, FollowsTheProtection) {
  for (const std::size_t count : kCounts) {
    const Pages pages(count, PROT_READ | PROT_WRITE);
    mprotect(pages.page(count - 1), kPage, PROT_READ);
    EXPECT_TRUE(can_access(pages.page(0), pages.size(), false));
    EXPECT_FALSE(can_access(pages.page(0), pages.size(), true));
    EXPECT_TRUE(can_access(pages.page(0), pages.size() - kPage, true));
    mprotect(pages.page(0), kPage, PROT_NONE);
    EXPECT_FALSE(can_access(pages.page(0), pages.size(), false));
  }
}

TEST(CanAccess, DoesNotPopulateLongRanges) {
  const Pages pages(100'000, PROT_READ | PROT_WRITE);
  EXPECT_TRUE(can_access(pages.page(0), pages.size(), true));
  unsigned char present = 1;
  ASSERT_EQ(mincore(pages.page(50'000), kPage, &present), 0);
  EXPECT_EQ(present & 1, 0);
}

}  // namespace
}  // namespace plugfest::roce
