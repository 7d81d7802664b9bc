// A diagnosis for people and for programs.
#pragma once

#include <string>
#include <string_view>

#include "harness/doctor/finding.h"

namespace plugfest::doctor {

/// A line for each mode, then its findings. `colour`: with a terminal's escape sequences.
std::string to_text(const Diagnosis& diagnosis, bool colour);

/// The document that docs/doctor.md describes. `version`: plugfest's.
std::string to_json(const Diagnosis& diagnosis, std::string_view version);

}  // namespace plugfest::doctor
