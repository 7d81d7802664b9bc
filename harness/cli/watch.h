// run --watch: judges again whenever the library's file changes.
#pragma once

#include <optional>

#include "harness/cli/run.h"

namespace plugfest::cli {

/// Runs rounds, each in a process of its own, until a signal ends the command. Returns nothing in such a process, which
/// then runs the rules and calls hand_over(). Returns the exit code of the last round in the process that called it.
/// Before a round after the first one it waits until the library has changed; after such a round it prints the verdicts
/// that changed. Ends after the first round if that had no results. Sets a seed for all rounds in `arguments`.
/// Errors: std::runtime_error, also if options contradict --watch.
std::optional<int> watch(RunArguments& arguments);

/// Gives the results of a round to the process that compares them.
void hand_over(const RunArguments& arguments, const report::Document& document);

}  // namespace plugfest::cli
