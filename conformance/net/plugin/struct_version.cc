#include "conformance/net/plugin/struct_version.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "harness/plugin/layout.h"

namespace plugfest::conformance {
namespace {

/// Whether the members that every version has hold values of a real device.
bool plausible(control::PropertiesOutcome properties, int api) {
  const plugin::ApiLayout& layout = plugin::api_layout(api);
  properties.fields.clear();
  for (const plugin::FieldLayout& field : layout.properties) {
    if (field.offset + field.size > properties.bytes.size()) continue;
    properties.fields.push_back({std::string(field.name), field.offset, field.size});
  }
  const auto within = [&](const char* field, std::int64_t first, std::int64_t last) {
    return !properties.has(field) || (properties.integer(field) >= first && properties.integer(field) <= last);
  };
  const float latency = properties.real("latency");
  return within("speed", 100, 3'200'000) && within("port", 0, 255) && within("maxComms", 1, 1 << 24) &&
         within("maxRecvs", 1, 64) && within("regIsGlobal", 0, 1) && within("forceFlush", 0, 1) &&
         (latency == 0 || (std::isfinite(latency) && latency > 1e-6F && latency < 1e6F));
}

}  // namespace

std::string version_hint(const control::PropertiesOutcome& properties, int api) {
  if (plausible(properties, api)) return "";
  for (int distance = 1; distance <= plugin::kNewestApi - plugin::kOldestApi; ++distance) {
    for (const int other : {api - distance, api + distance}) {
      if (other < plugin::kOldestApi || other > plugin::kNewestApi) continue;
      if (plausible(properties, other)) {
        return fmt::format("; the values are those of a v{} structure: wrong struct version?", other);
      }
    }
  }
  return "";
}

}  // namespace plugfest::conformance
