#include "harness/cluster/plan/differences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fabric/system/text.h"

namespace plugfest::cluster {
namespace {

using nlohmann::json;

constexpr std::size_t kMostNamed = 8;
constexpr std::size_t kMostValueBytes = 80;

std::string text_of(const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return text.empty() ? "none" : shortened(text, kMostValueBytes);
}

/// The facts that hosts of one cluster share, by their names.
std::map<std::string, std::string> comparable(const json& facts) {
  std::map<std::string, std::string> found;
  const auto add = [&](const std::string& name, const json& of, const char* key) {
    if (of.is_object() && of.contains(key)) found[name] = text_of(of[key]);
  };
  add("kernel", facts, "kernel");
  add("system", facts, "system");
  if (facts.contains("plugin")) add("plugin, SHA-256", facts["plugin"], "sha256");
  if (facts.contains("tool")) add("plugfest, SHA-256", facts["tool"], "sha256");
  const json devices = facts.value("devices", json::array());
  found["RDMA devices"] = std::to_string(devices.size());
  for (const json& device : devices) {
    if (!device.is_object() || !device.value("name", json()).is_string()) continue;
    const std::string name = device["name"];
    for (const char* key : {"driver", "firmware", "model"}) add(fmt::format("{} of {}", key, name), device, key);
    for (const json& port : device.value("ports", json::array())) {
      const std::string port_name =
          port.is_object() ? fmt::format("{} port {}", name, text_of(port.value("port", json()))) : name;
      for (const auto& [key, text] : {std::pair{"state", "state"},
                                      {"link_layer", "link layer"},
                                      {"rate", "rate"},
                                      {"mtu", "MTU"},
                                      {"gid", "GID"},
                                      {"pfc", "PFC"}}) {
        add(fmt::format("{} of {}", text, port_name), port, key);
      }
    }
  }
  return found;
}

}  // namespace

std::string Difference::text() const {
  std::vector<std::string> parts;
  for (const auto& [value, hosts] : values) {
    const bool many = hosts.size() > kMostNamed;
    parts.push_back(fmt::format("{} on {}", value,
                                many ? counted(hosts.size(), "host") : fmt::format("{}", fmt::join(hosts, ", "))));
  }
  return fmt::format("{}: {}", what, fmt::join(parts, "; "));
}

std::vector<Difference> find_differences(const std::map<std::string, std::string>& facts) {
  std::map<std::string, std::map<std::string, std::string>> by_host;
  std::map<std::string, bool> names;
  for (const auto& [host, text] : facts) {
    const json parsed = json::parse(text, nullptr, false);
    if (!parsed.is_object() || parsed.empty()) continue;
    by_host[host] = comparable(parsed);
    for (const auto& [name, value] : by_host[host]) names[name] = true;
  }
  std::vector<Difference> found;
  for (const auto& [name, unused] : names) {
    std::map<std::string, std::vector<std::string>> hosts;
    for (auto& [host, all] : by_host) {
      const auto value = all.find(name);
      hosts[value == all.end() ? "absent" : value->second].push_back(host);
    }
    if (hosts.size() < 2) continue;
    Difference difference{.what = name, .values = {hosts.begin(), hosts.end()}};
    std::stable_sort(difference.values.begin(), difference.values.end(),
                     [](const auto& one, const auto& other) { return one.second.size() > other.second.size(); });
    found.push_back(std::move(difference));
  }
  return found;
}

}  // namespace plugfest::cluster
