// Runs a program on the host and captures its output.
#pragma once

#include <string>
#include <vector>

namespace plugfest::guest {

/// The exit code and the output of a program.
struct Finished {
  int exit_code = 0;   ///< 127 if the program does not exist, 128 plus the signal's number if a signal killed it
  std::string output;  ///< standard output
  std::string errors;  ///< standard error
};

/// Runs a program with empty standard input and waits until it has exited. `argv[0]` is searched in PATH. `folder`: the
/// working folder, empty for the current one. The program is killed when this process exits.
/// Errors: std::system_error if no process can be created.
Finished run_program(std::vector<std::string> argv, const std::string& folder = {});

}  // namespace plugfest::guest
