// Checks of numbers on the command line.
#pragma once

#include "harness/cli/command_line.h"

namespace plugfest::cli {

/// For --seed: a whole number from 0 to 2^64 - 1.
Option check_seed(Option option);

/// For --timeout-scale: a number above 0, at most 1000000.
Option check_timeout_scale(Option option);

/// A whole number from 1 to `most`.
Option check_count(Option option, int most);

}  // namespace plugfest::cli
