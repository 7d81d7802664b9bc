// The parts of `plugfest bench`.
#pragma once

#include "harness/cli/command.h"

namespace plugfest::cli {

void add_bench_fabric(Command bench);

}  // namespace plugfest::cli
