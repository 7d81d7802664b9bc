#include "harness/report/formats/json_text.h"

#include <nlohmann/json.hpp>

namespace plugfest::report {

using nlohmann::ordered_json;

std::string json_text(const ordered_json& json) {
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

std::string json_string(std::string_view text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace plugfest::report
