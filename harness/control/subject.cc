#include "harness/control/subject.h"

#include <algorithm>
#include <utility>

namespace plugfest::control {

std::optional<int> KnownDevice::find(const std::vector<Properties>& devices) const {
  const auto only = [&](auto is_it) -> std::optional<int> {
    const auto first = std::find_if(devices.begin(), devices.end(), is_it);
    if (first == devices.end() || std::find_if(first + 1, devices.end(), is_it) != devices.end()) return std::nullopt;
    return static_cast<int>(first - devices.begin());
  };
  if (const auto same = only([&](const Properties& device) { return guid != 0 && device.guid == guid; })) return same;
  if (const auto same = only([&](const Properties& device) { return device.name == name; })) return same;
  return std::cmp_less(index, devices.size()) ? std::optional<int>(index) : std::nullopt;
}

}  // namespace plugfest::control
