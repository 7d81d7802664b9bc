#include "harness/report/formats/badge.h"

#include <fmt/format.h>

#include "harness/report/verdict.h"
#include "harness/wire/json.h"

namespace plugfest::report {

std::string to_badge(const Document& document) {
  const Summary summary = summarize(document.runs);
  std::string subject;
  if (document.runs.size() == 1) {
    const Run& run = document.runs.front();
    subject = fmt::format("{} v{}: ", run.plugin_name, run.api);
  }
  const int code = exit_code(document);
  const char* const colour = code == 1                         ? "red"
                             : code != 0                       ? "lightgrey"
                             : summary.of(Verdict::kWarn) != 0 ? "yellow"
                                                               : "brightgreen";
  return fmt::format("{{\"schemaVersion\": 1, \"label\": \"plugfest\", \"message\": {}, \"color\": \"{}\"}}\n",
                     wire::json_string(subject + summary.describe()), colour);
}

}  // namespace plugfest::report
