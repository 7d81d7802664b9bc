// Runs plugfest and captures its output.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "fabric/system/process.h"
#include "fabric/system/testing.h"
#include "test_paths.h"

namespace plugfest::cli {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Keeps plugfest from remembering failed rules in the user's folder: a file cannot contain folders.
inline const bool remembers_nothing = setenv("XDG_STATE_HOME", "/dev/null", 1) == 0;

/// Runs "plugfest ARGUMENTS" with the shell. `in_child`: see run_shell().
inline Finished plugfest(const std::string& arguments, const std::function<void()>& in_child = {}) {
  return run_shell("exec " PLUGFEST_PROGRAM " " + arguments, in_child);
}

/// The output of a program. Fails the test unless it has ended with `exit_code`.
inline std::string output_of(const Finished& program, int exit_code = 0) {
  EXPECT_EQ(program.exit_code, exit_code) << program.output;
  return program.output;
}

/// Runs plugfest and returns its error. Fails the test unless the exit code is 2.
inline std::string error_of(const std::string& arguments, const std::function<void()>& in_child = {}) {
  const std::string error = output_of(plugfest(arguments, in_child), 2);
  EXPECT_THAT(error, testing::StartsWith("plugfest: "));
  return error;
}

/// The option that selects a mutant: " --plugin …/libnccl-net-NAME.so".
inline std::string mutant(const std::string& name) {
  return " --plugin " + std::filesystem::path(PLUGFEST_PROGRAM).parent_path().string() +
         "/../lib/mutants/libnccl-net-" + name + ".so";
}

/// Returns `text` on one line. A long build path moves the line breaks of plugfest's output.
inline std::string unwrapped(const std::string& text) {
  std::istringstream words(text);
  std::string line, word;
  while (words >> word) line += (line.empty() ? "" : " ") + word;
  return line;
}

/// Starts plugfest. `output`: the file of its standard output and standard error. `environment`: "NAME=value".
inline pid_t start_plugfest(const std::vector<std::string>& arguments, const std::filesystem::path& output,
                            std::vector<std::string> environment = {}) {
  const pid_t child = fork();
  if (child != 0) return child;
  for (std::string& variable : environment) putenv(variable.data());
  std::vector<char*> argv = {const_cast<char*>(PLUGFEST_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  if (std::freopen(output.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0) _exit(126);
  execv(PLUGFEST_PROGRAM, argv.data());
  _exit(127);
}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// `arguments`: separated by spaces.
inline pid_t start_plugfest(const std::string& arguments, const std::filesystem::path& output,
                            std::vector<std::string> environment = {}) {
  std::istringstream words(arguments);
  return start_plugfest(std::vector<std::string>{std::istream_iterator<std::string>(words), {}}, output,
                        std::move(environment));
}

/// Waits until the output of a plugfest that runs contains `text`. Fails the test after four minutes.
inline void await_output(const std::filesystem::path& output, const std::string& text) {
  const auto found = [&] { return content_of(output).find(text) != std::string::npos; };
  EXPECT_TRUE(wait_until(found, std::chrono::minutes(4))) << "no \"" << text << "\" in:\n" << content_of(output);
}

/// Runs plugfest in a folder of its own.
class RunTest : public testing::Test {
 protected:
  /// Returns the exit code.
  int plugfest(const std::string& arguments) {
    return run_shell("exec " PLUGFEST_PROGRAM " " + arguments + " >output 2>&1",
                     [&] { std::filesystem::current_path(folder_.path()); })
        .exit_code;
  }
  /// Runs plugfest run; read_results() then returns its results.
  int run_rules(const std::string& arguments) { return plugfest("run --json r.json " + arguments); }
  std::string output() const { return content_of(folder_ / "output"); }
  nlohmann::json read_results() const { return nlohmann::json::parse(content_of(folder_ / "r.json")); }

  ScratchFolder folder_;
};

}  // namespace plugfest::cli
