#include "conformance/net/plugin/struct_version.h"

#include <gtest/gtest.h>

#include <cstring>

#include "harness/plugin/layout.h"

namespace plugfest::conformance {
namespace {

/// Properties of a device of 10 Gbit/s, written with the structure of version `written` and read with that of `read`.
control::PropertiesOutcome properties(int written, int read) {
  control::PropertiesOutcome outcome;
  outcome.bytes.resize(plugin::api_layout(read).properties_size);
  const auto put = [&](std::string_view name, auto value) {
    for (const plugin::FieldLayout& field : plugin::api_layout(written).properties) {
      if (field.name == name && field.offset + field.size <= outcome.bytes.size()) {
        std::memcpy(outcome.bytes.data() + field.offset, &value, sizeof value);
      }
    }
  };
  put("speed", 10000);
  put("port", 1);
  put("latency", 2.5F);
  put("maxComms", 65536);
  put("maxRecvs", 8);
  for (const plugin::FieldLayout& field : plugin::api_layout(read).properties) {
    outcome.fields.push_back({std::string(field.name), field.offset, field.size});
  }
  return outcome;
}

TEST(VersionHint, NamesTheVersionOfTheStructure) {
  EXPECT_EQ(version_hint(properties(8, 12), 12), "; the values are those of a v8 structure: wrong struct version?");
  EXPECT_EQ(version_hint(properties(9, 8), 8), "; the values are those of a v9 structure: wrong struct version?");
  EXPECT_EQ(version_hint(properties(6, 8), 8), "; the values are those of a v7 structure: wrong struct version?")
      << "v6 and v7 have these members at the same places";
}

TEST(VersionHint, IsEmptyForTheRightVersion) {
  for (int version = plugin::kOldestApi; version <= plugin::kNewestApi; ++version) {
    EXPECT_EQ(version_hint(properties(version, version), version), "") << version;
  }
}

TEST(VersionHint, IsEmptyForValuesOfNoVersion) {
  control::PropertiesOutcome garbage = properties(12, 12);
  std::memset(garbage.bytes.data(), 0x5a, garbage.bytes.size());
  EXPECT_EQ(version_hint(garbage, 12), "");
}

}  // namespace
}  // namespace plugfest::conformance
