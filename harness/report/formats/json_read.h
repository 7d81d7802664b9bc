// Reads results.json again.
#pragma once

#include <string>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

/// Returns the runs of a results.json: plugin, version, seed, times and rules. Causes, devices and faults are left out.
/// Errors: std::runtime_error "not a results.json of plugfest: …" if `text`, which may come from anywhere, is something
/// else; "schema 2: …" if a newer plugfest wrote it.
std::vector<Run> read_runs(const std::string& text);

}  // namespace plugfest::report
