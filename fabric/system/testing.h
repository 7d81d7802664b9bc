// Helps tests: selects long tests, catches error messages, runs shell commands, unmaps memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>

#include "fabric/system/process.h"
#include "fabric/system/scratch_folder.h"
#include "fabric/system/wait.h"

namespace plugfest {

/// Whether long tests run: scripts/test --all sets PLUGFEST_TEST_ALL.
inline bool runs_long_tests() { return std::getenv("PLUGFEST_TEST_ALL") != nullptr; }

/// Calls `action`. Returns the message of the std::runtime_error that it throws, or "no error".
inline std::string error_message(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

/// Runs `command` with /bin/sh as run_program(), with standard error in `output`. Start `command` with "exec" to get
/// the exit code of a program that a signal ends.
inline Finished run_shell(const std::string& command, const std::function<void()>& in_child = {}) {
  return run_program({"/bin/sh", "-c", command}, {}, [&] {
    dup2(STDOUT_FILENO, STDERR_FILENO);
    if (in_child) in_child();
  });
}

/// 1 GiB of memory, of which a test unmaps the end. It is that large because the kernel gives memory to other threads
/// of the process from the end of the unmapped part: its beginning stays unmapped.
class LargeMapping {
 public:
  static constexpr std::size_t kBytes = 1 << 30;

  explicit LargeMapping(int protection = PROT_READ | PROT_WRITE)
      : begin_(mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    EXPECT_NE(begin_, MAP_FAILED);
  }
  ~LargeMapping() { unmap_after(0); }
  LargeMapping(const LargeMapping&) = delete;
  LargeMapping& operator=(const LargeMapping&) = delete;

  char* begin() const { return static_cast<char*>(begin_); }
  /// Unmaps all but the first `kept` bytes, which are whole pages.
  void unmap_after(std::size_t kept) {
    if (kept < mapped_) munmap(begin() + kept, mapped_ - kept);
    mapped_ = kept;
  }

 private:
  void* const begin_;
  std::size_t mapped_ = kBytes;
};

}  // namespace plugfest

/// In a test: skips it unless long tests run.
#define PLUGFEST_LONG_TEST() \
  if (!plugfest::runs_long_tests()) GTEST_SKIP() << "only with scripts/test --all"
