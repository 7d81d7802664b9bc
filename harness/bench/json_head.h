// The part that the JSON results of all benchmarks share.
#pragma once

#include <array>
#include <nlohmann/json.hpp>

#include "harness/report/results.h"

namespace plugfest::bench {

/// Schema, tool, environment, and an empty array "rows". `load`: the machine's load averages before and after.
inline nlohmann::ordered_json json_head(const report::Document& document, std::array<double, 2> load) {
  return {{"schema", 1},
          {"tool", {{"version", document.version}, {"commit", document.commit}}},
          {"environment",
           {{"kernel", document.environment.kernel},
            {"cpu", document.environment.cpu},
            {"privileges", document.environment.privileges},
            {"load", load}}},
          {"rows", nlohmann::ordered_json::array()}};
}

}  // namespace plugfest::bench
