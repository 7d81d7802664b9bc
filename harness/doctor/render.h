// A diagnosis as text and as JSON.
#pragma once

#include <string>
#include <string_view>

#include "harness/doctor/finding.h"

namespace plugfest::doctor {

/// One line per mode, then the findings of each mode. `colour`: with a terminal's escape sequences.
std::string to_text(const Diagnosis& diagnosis, bool colour);

/// See docs/doctor.md for the format. `version`: plugfest's.
std::string to_json(const Diagnosis& diagnosis, std::string_view version);

/// The host in the JSON of a diagnosis with mode mesh. `file`: its name, for the error.
/// Errors: std::runtime_error for any other text.
MeshHost read_mesh_host(std::string_view text, const std::string& file);

}  // namespace plugfest::doctor
