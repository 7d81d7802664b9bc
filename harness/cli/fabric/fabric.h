// The parts of `plugfest fabric`.
#pragma once

#include "harness/cli/command.h"

namespace plugfest::cli {

/// up, list, down.
void add_fabric_background(CLI::App& fabric, Body& chosen);
void add_fabric_pcap(CLI::App& fabric, Body& chosen);
void add_fabric_show(CLI::App& fabric, Body& chosen);

}  // namespace plugfest::cli
