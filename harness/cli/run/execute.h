// Second step of plugfest run: builds the test bed and runs the rules.
#pragma once

#include "harness/cli/run/prepare.h"

namespace plugfest::cli {

/// Runs the rules for all versions and repetitions, prints the results to standard output, and adds them to
/// `run.document`. Stops early on SIGINT, SIGTERM and SIGHUP, and on --maxfail. Call it inside the namespaces of
/// `run.fabric`. Errors: std::runtime_error.
void execute(RunArguments& arguments, PreparedRun& run);

}  // namespace plugfest::cli
