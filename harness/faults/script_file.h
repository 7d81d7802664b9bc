// Reads fault scripts from YAML files.
#pragma once

#include <filesystem>

#include "harness/faults/script.h"

namespace plugfest::faults {

/// Reads a file. Errors: as read_script().
Script read_script_file(const std::filesystem::path& path, const topology::Graph& graph);

}  // namespace plugfest::faults
