// Helps tests: selects long tests, catches error messages, makes temporary folders, runs shell commands, waits.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "fabric/system/process.h"

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

/// Creates an empty folder in $TMPDIR (default /tmp), and removes it with its content on destruction.
/// Errors: std::system_error if the folder cannot be created.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = std::filesystem::temp_directory_path() / "plugfest-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  operator const std::filesystem::path&() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Calls `condition` every 2 ms until it returns true. Returns false after `timeout`.
inline bool wait_until(const std::function<bool()>& condition,
                       std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// Runs `command` with /bin/sh as run_program(), with standard error in `output`. Start `command` with "exec" to get
/// the exit code of a program that a signal ends.
inline Finished run_shell(const std::string& command, const std::function<void()>& in_child = {}) {
  return run_program({"/bin/sh", "-c", command}, {}, [&] {
    dup2(STDOUT_FILENO, STDERR_FILENO);
    if (in_child) in_child();
  });
}

}  // namespace plugfest

/// In a test: skips it unless long tests run.
#define PLUGFEST_LONG_TEST() \
  if (!plugfest::runs_long_tests()) GTEST_SKIP() << "only with scripts/test --all"
