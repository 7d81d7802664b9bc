#include "harness/bed/device_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "fabric/system/text.h"

namespace plugfest::bed {

std::string DeviceChoice::text() const { return fmt::format("{}={}/{}", device, host, interface); }

DeviceChoice parse_device_choice(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  const std::size_t slash = text.rfind('/');
  if (equals == 0 || equals == std::string_view::npos || slash == std::string_view::npos || slash <= equals + 1 ||
      slash + 1 == text.size())
    throw std::runtime_error(fmt::format("--device \"{}\": expected NAME=HOST/INTERFACE, as in foo0=a/eth0", text));
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1, slash - equals - 1)),
          std::string(text.substr(slash + 1))};
}

void check_device_choices(const std::vector<DeviceChoice>& choices, const std::set<std::string>& interfaces) {
  std::map<std::string, std::set<std::string>> hosts;
  for (const std::string& name : interfaces) hosts[control::host_of(name)].insert(interface_of(name));
  std::map<std::string, std::string> seen;
  for (const DeviceChoice& choice : choices) {
    const auto host = hosts.find(choice.host);
    if (host == hosts.end()) {
      std::vector<std::string> names;
      for (const auto& [name, interfaces] : hosts) names.push_back(name);
      throw std::runtime_error(fmt::format("--device {}: no rule runs on host {}: {}", choice.text(), choice.host,
                                           suggestion(choice.host, names)));
    }
    if (host->second.count(choice.interface) == 0) {
      throw std::runtime_error(fmt::format("--device {}: no rule uses interface {} of host {}: {}", choice.text(),
                                           choice.interface, choice.host,
                                           suggestion(choice.interface, {host->second.begin(), host->second.end()})));
    }
    const auto [earlier, is_new] = seen.emplace(choice.host + "/" + choice.interface, choice.device);
    if (!is_new) {
      throw std::runtime_error(fmt::format("--device {}: {} is already {}: leave out one of them", choice.text(),
                                           earlier->first, earlier->second));
    }
  }
}

std::string interface_of(const std::string& rank) { return rank.substr(rank.rfind('.') + 1); }

void DeviceTable::match(const std::string& rank, int device, std::string_view found_by) {
  End& end = ends_.at(rank);
  if (end.index) return;
  end.index = device;
  end.found_by = found_by;
}

std::vector<std::string> DeviceTable::unmatched() const {
  std::vector<std::string> ranks;
  for (const auto& [rank, end] : ends_)
    if (!end.index) ranks.push_back(rank);
  return ranks;
}

void DeviceTable::choose(const DeviceChoice& choice) {
  const std::string rank = choice.host + "." + choice.interface;
  std::vector<std::string> names;
  for (const control::Properties& device : devices(rank)) names.push_back(device.name);
  const auto named = std::find(names.begin(), names.end(), choice.device);
  int index = static_cast<int>(named - names.begin());
  if (named == names.end()) {
    const bool number = choice.device.find_first_not_of("0123456789") == std::string::npos && choice.device.size() < 5;
    if (!number || std::stoul(choice.device) >= names.size()) {
      throw std::runtime_error(fmt::format("--device {}: the plugin has no device {} on host {}: {}", choice.text(),
                                           choice.device, choice.host, suggestion(choice.device, names)));
    }
    index = std::stoi(choice.device);
  }
  match(rank, index, "--device");
}

void DeviceTable::match_by_name() {
  for (const std::string& rank : unmatched())
    if (const std::optional<int> named = control::device_of_interface(devices(rank), interface_of(rank)))
      match(rank, *named, "name");
}

void DeviceTable::match_by_order() {
  for (const std::string& rank : unmatched()) {
    for (const int device : candidates(rank)) {
      const std::string& name = devices(rank)[static_cast<std::size_t>(device)].name;
      if (control::names_similar_interface(name, interface_of(rank))) continue;  // of another interface
      match(rank, device, "order");
      break;
    }
  }
}

std::vector<int> DeviceTable::candidates(const std::string& rank) const {
  const End& end = ends_.at(rank);
  if (end.index) return {*end.index};
  std::set<int> taken;
  std::size_t place = 0;
  for (const auto& [other, other_end] : ends_) {
    if (control::host_of(other) != control::host_of(rank)) continue;
    if (std::pair(other.size(), other) < std::pair(rank.size(), rank)) ++place;  // eth2 precedes eth10
    if (other_end.index) taken.insert(*other_end.index);
  }
  std::vector<int> devices;
  for (std::size_t i = 0; i < end.devices.size(); ++i) {
    const int device = static_cast<int>(i);
    if (taken.count(device) == 0) devices.insert(i == place ? devices.begin() : devices.end(), device);
  }
  return devices;
}

std::vector<DeviceMatch> DeviceTable::matches() const {
  std::vector<DeviceMatch> all;
  for (const auto& [rank, end] : ends_) {
    if (!end.index) continue;
    const control::Properties& device = end.devices[static_cast<std::size_t>(*end.index)];
    all.push_back({rank, {*end.index, device.name, device.guid}, end.found_by});
  }
  return all;
}

}  // namespace plugfest::bed
