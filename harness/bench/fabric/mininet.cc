#include "harness/bench/fabric/mininet.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "fabric/system/exit_code.h"
#include "harness/bench/perftest.h"

namespace plugfest::bench {
namespace {

/// Output of shell commands with standard error. `exit_code`: 127 if the last command could not be started.
std::string output_of(const std::string& command, int& exit_code) {
  std::FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  std::string output;
  char part[4096];
  for (std::size_t count; (count = std::fread(part, 1, sizeof(part), pipe)) > 0;) output.append(part, count);
  const int status = pclose(pipe);
  exit_code = exit_code_of(status);
  return output;
}

std::string script() {
  return (std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "lib" / "mininet_tree.py")
      .string();
}

}  // namespace

void require_mininet() {
  int exit_code = 0;
  output_of("/usr/bin/python3 -c 'import mininet.net' && command -v brctl && command -v mnexec && command -v ifconfig",
            exit_code);
  if (exit_code != 0) {
    throw std::runtime_error(
        "bench fabric --mininet needs Mininet: run\n    sudo apt-get install mininet bridge-utils net-tools");
  }
}

// Uses the distribution's Python, which has the mininet package. Another Python may be first in PATH.
UpAndDown measure_mininet(int k) {
  int exit_code = 0;
  const std::string output = output_of(fmt::format("/usr/bin/python3 '{}' {}", script(), k), exit_code);
  if (exit_code != 0) throw std::runtime_error(fmt::format("Mininet failed with exit code {}:\n{}", exit_code, output));
  const auto number = [&](std::string_view name) { return read_named("Mininet", output, name); };
  return {number("up_seconds"), number("down_seconds"), number("host_kib")};
}

}  // namespace plugfest::bench
