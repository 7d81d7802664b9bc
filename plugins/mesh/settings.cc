#include "plugins/mesh/settings.h"

#include <charconv>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::size_t kMinSecret = 16;

using Lookup = std::function<const char*(const char*)>;

std::optional<int> number(const Lookup& lookup, const char* name, int least, int most) {
  return number_in(lookup(name), name, least, most);
}

}  // namespace

std::optional<int> number_in(const char* text, const char* name, int least, int most, const char* expected) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view digits = text;
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > most) {
    throw Failure(Result::kInvalidArgument, std::string(name) + "=" + text + ": expected " + expected + " from " +
                                                std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

bool Settings::admits(std::string_view device) const {
  if (devices.empty()) return true;
  for (const std::string& name : devices)
    if (device.starts_with(name)) return !exclude;
  return exclude;
}

Settings read_settings(const Lookup& lookup) {
  Settings settings;
  if (const char* text = lookup("NCCL_MESH_HCA")) {
    std::string_view list = text;
    if (list.starts_with('^')) {
      settings.exclude = true;
      list.remove_prefix(1);
    }
    while (!list.empty()) {
      const std::string_view name = list.substr(0, list.find(','));
      list.remove_prefix(std::min(list.size(), name.size() + 1));
      if (!name.empty()) settings.devices.emplace_back(name);
    }
  }
  settings.gid_index = number(lookup, "NCCL_MESH_GID_INDEX", 0, 255);
  settings.timeout = number(lookup, "NCCL_MESH_TIMEOUT", 1, 31).value_or(settings.timeout);
  settings.retry_count = number(lookup, "NCCL_MESH_RETRY_CNT", 0, 7).value_or(settings.retry_count);
  settings.traffic_class = number(lookup, "NCCL_MESH_TC", 0, 255).value_or(settings.traffic_class);
  settings.links = number(lookup, "NCCL_MESH_LINKS", 1, 4).value_or(settings.links);
  settings.queue_pairs = number(lookup, "NCCL_MESH_QPS_PER_LINK", 1, 4).value_or(settings.queue_pairs);
  settings.eager_bytes = number(lookup, "NCCL_MESH_EAGER", 0, 4096).value_or(settings.eager_bytes);
  settings.cuda = number(lookup, "NCCL_MESH_CUDA", 0, 1);
  if (const char* text = lookup("NCCL_MESH_RELAY_SECRET"); text != nullptr && *text != '\0') {
    settings.relay_secret = text;
    if (settings.relay_secret.size() < kMinSecret) {
      throw Failure(Result::kInvalidArgument, "NCCL_MESH_RELAY_SECRET is too short: expected at least " +
                                                  std::to_string(kMinSecret) + " characters");
    }
  }
  settings.relay_port = number(lookup, "NCCL_MESH_RELAY_PORT", 1024, 65535).value_or(settings.relay_port);
  settings.relay_wait_s = number(lookup, "NCCL_MESH_RELAY_WAIT", 0, 600).value_or(settings.relay_wait_s);
  return settings;
}

}  // namespace mesh
