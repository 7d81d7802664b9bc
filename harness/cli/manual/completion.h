// Completion of command lines in shells.
#pragma once

#include <string>

#include "harness/cli/command_line.h"

namespace plugfest::cli {

/// Return a script that bash or zsh loads when a user types a command line of `program`. It completes subcommands,
/// options, files, and the names of rules and mutants, for which it calls the program.
std::string bash_completion(const CommandText& program);
std::string zsh_completion(const CommandText& program);

}  // namespace plugfest::cli
