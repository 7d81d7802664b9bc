// Changes to a process's environment, as JSON: null removes a variable.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "harness/control/process/launcher.h"

namespace plugfest::cluster {

inline nlohmann::json to_json(const control::Environment& environment) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, value] : environment) object[name] = value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  return object;
}

/// Errors: nlohmann::json::exception.
inline control::Environment environment_from(const nlohmann::json& object) {
  control::Environment environment;
  for (const auto& [name, value] : object.items()) {
    environment.emplace_back(name, value.is_null() ? std::nullopt : std::optional(value.get<std::string>()));
  }
  return environment;
}

}  // namespace plugfest::cluster
