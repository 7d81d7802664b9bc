// Runs a program of the host to its end and keeps what it printed.
#pragma once

#include <string>
#include <vector>

namespace plugfest::guest {

struct Finished {
  int exit_code = 0;   ///< 127 if there is no such program, 128 plus the signal's number if a signal killed it
  std::string output;  ///< standard output
  std::string errors;  ///< standard error
};

/// `argv[0]` is looked up in PATH. Standard input is empty. `folder`: where it runs, empty for here. It is killed when
/// this process ends. Errors: std::system_error when no process can be made.
Finished run_program(std::vector<std::string> argv, const std::string& folder = {});

}  // namespace plugfest::guest
