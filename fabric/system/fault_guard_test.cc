#include "fabric/system/fault_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace plugfest {
namespace {

const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// Two pages, the second of which is not mapped.
class HalfMapped {
 public:
  HalfMapped() {
    install_fault_handlers();
    munmap(begin_ + kPage, kPage);
  }
  ~HalfMapped() { munmap(begin_, kPage); }
  HalfMapped(const HalfMapped&) = delete;
  HalfMapped& operator=(const HalfMapped&) = delete;

  std::span<std::byte> mapped() const { return {begin_, kPage}; }
  std::span<std::byte> all() const { return {begin_, 2 * kPage}; }

 private:
  std::byte* const begin_ =
      static_cast<std::byte*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

bool write_to(std::span<std::byte> memory) {
  return guarded(memory, [&] { std::memset(memory.data(), 7, memory.size()); });
}

TEST(FaultGuard, ReportsMemoryThatIsNotMapped) {
  const HalfMapped pages;
  EXPECT_TRUE(write_to(pages.mapped()));
  EXPECT_EQ(pages.mapped().back(), std::byte{7});
  EXPECT_FALSE(write_to(pages.all()));
  EXPECT_FALSE(write_to(pages.all())) << "also the second time";
  EXPECT_TRUE(write_to(pages.mapped()));
}

TEST(FaultGuard, ReportsMemoryThatIsProtected) {
  const HalfMapped pages;
  mprotect(pages.mapped().data(), kPage, PROT_READ);
  EXPECT_FALSE(write_to(pages.mapped()));
  std::byte first = {};
  EXPECT_TRUE(guarded(pages.mapped(), [&] { first = pages.mapped().front(); }));
}

using FaultGuardDeathTest = testing::Test;

TEST(FaultGuardDeathTest, LeavesOtherFaultsToTheDefaultAction) {
  const HalfMapped pages;
  volatile std::byte* const unmapped = pages.all().data() + kPage;
  EXPECT_EXIT(*unmapped = std::byte{1}, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(guarded(pages.mapped(), [&] { *unmapped = std::byte{1}; }), testing::KilledBySignal(SIGSEGV), "")
      << "memory that is not guarded";
  EXPECT_EXIT(raise(SIGSEGV), testing::KilledBySignal(SIGSEGV), "");
}

TEST(FaultGuardDeathTest, PassesOtherFaultsToTheHandlerOfTheProgram) {
  constexpr int kExitCode = 42;
  volatile int* const nowhere = nullptr;
  const auto with_handler = [&](int flags) {
    struct sigaction handler = {};
    handler.sa_sigaction = [](int, siginfo_t*, void*) { _exit(kExitCode); };
    handler.sa_flags = flags;
    sigaction(SIGSEGV, &handler, nullptr);
    install_fault_handlers();
    const HalfMapped pages;
    if (!write_to(pages.all())) *nowhere = 1;
  };
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // the child installs its handler before this library does
  EXPECT_EXIT(with_handler(SA_SIGINFO), testing::ExitedWithCode(kExitCode), "");
}

}  // namespace
}  // namespace plugfest
