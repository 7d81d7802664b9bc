// The parts of `plugfest bench`.
#pragma once

#include "harness/cli/command.h"

namespace plugfest::cli {

void add_bench_fabric(CLI::App& bench, Body& chosen);

}  // namespace plugfest::cli
