// Converts JSON values to text. Keeps nlohmann's serializer, which takes long to compile, in one file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace plugfest::report {

/// Returns `json` as indented UTF-8 with a final line feed. Replaces invalid UTF-8 by U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);

/// Returns `text` as a JSON string in quotes. Replaces invalid UTF-8 by U+FFFD.
std::string json_string(std::string_view text);

}  // namespace plugfest::report
