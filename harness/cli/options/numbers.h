// Numbers that an option takes and that mean something.
#pragma once

#include <CLI/CLI.hpp>

namespace plugfest::cli {

/// For --seed: refuses digits that do not fit, which would be taken for another number. What is no number at all is
/// left to the conversion.
CLI::Option* check_seed(CLI::Option* option);

/// For --timeout-scale: a factor of a call's time that neither is nothing nor lasts for ever.
CLI::Option* check_timeout_scale(CLI::Option* option);

}  // namespace plugfest::cli
