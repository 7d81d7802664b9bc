// Subcommands of `plugfest bench` in other files.
#pragma once

#include "harness/cli/command.h"

namespace plugfest::cli {

void add_bench_fabric(Command bench);
void add_bench_net(Command bench);

}  // namespace plugfest::cli
