// Numbers that an option takes and that mean something.
#pragma once

#include "harness/cli/command_line.h"

namespace plugfest::cli {

/// For --seed: refuses digits that do not fit, which would be taken for another number. What is no number at all is
/// left to the conversion.
Option check_seed(Option option);

/// For --timeout-scale: a factor of a call's time that neither is nothing nor lasts for ever.
Option check_timeout_scale(Option option);

}  // namespace plugfest::cli
