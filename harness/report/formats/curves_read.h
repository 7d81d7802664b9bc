// Reads the JSON of benchmarks as curves by message size.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "harness/report/document.h"

namespace plugfest::report {

/// Returns a document without runs, with the curves of what `plugfest bench net --json` or `plugfest coll --json` has
/// written; nothing if `json` is of neither. Rows that have one size only, such as message rates, are left out. Errors:
/// nlohmann::json::exception, std::runtime_error.
std::optional<Document> read_curves(const nlohmann::json& json);

}  // namespace plugfest::report
