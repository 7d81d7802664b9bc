// Subcommands of `plugfest fabric` in other files.
#pragma once

#include "harness/cli/command.h"

namespace plugfest::cli {

/// up, list, down.
void add_fabric_background(Command fabric);
void add_fabric_pcap(Command fabric);
void add_fabric_show(Command fabric);

}  // namespace plugfest::cli
