// The form that faults have in a YAML file.
#pragma once

#include <filesystem>

#include "harness/faults/script.h"

namespace plugfest::faults {

/// Errors: as read_script().
Script read_script_file(const std::filesystem::path& path, const topology::Graph& graph);

}  // namespace plugfest::faults
