#include "fabric/sharp_coll/device.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include "fabric/sharp_coll/failure.h"

namespace plugfest::sharp_coll {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxGids = 256;

std::vector<std::string> device_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

DevicePort parse(std::string_view list) {
  const std::string_view first = list.substr(0, list.find(','));
  const std::size_t colon = first.find(':');
  DevicePort result;
  result.device = first.substr(0, colon);
  bool valid = !result.device.empty() && result.device.find('/') == std::string::npos && result.device[0] != '.';
  if (colon != std::string_view::npos) {
    const std::string_view number = first.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), result.port);
    valid = valid && error == std::errc() && end == number.data() + number.size() && result.port >= 1;
  }
  if (!valid)
    throw Failure(SHARP_COLL_EINVAL,
                  "device list \"" + std::string(list) + "\": expected DEVICE:PORT, as in roce_eth0:1");
  return result;
}

// The file has the form 0000:0000:0000:0000:0000:ffff:c0a8:6401.
std::optional<in_addr> read_ipv4_gid(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  in6_addr gid = {};
  if (!(stream >> text) || inet_pton(AF_INET6, text.c_str(), &gid) != 1 || !IN6_IS_ADDR_V4MAPPED(&gid)) return {};
  in_addr address = {};
  std::memcpy(&address, gid.s6_addr + 12, sizeof(address));
  return address;
}

}  // namespace

DevicePort find_device_port(std::string_view list, const fs::path& class_infiniband) {
  DevicePort result;
  if (!list.empty()) result = parse(list);
  const std::vector<std::string> names = device_names(class_infiniband);
  if (list.empty() && !names.empty()) result.device = names.front();
  if (std::find(names.begin(), names.end(), result.device) == names.end()) {
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    throw Failure(SHARP_COLL_EDEV,
                  (list.empty() ? "no RDMA device" : "device " + result.device + " does not exist") + " in " +
                      class_infiniband.string() +
                      (known.empty() ? ": run the program with `plugfest fabric exec`" : ": choose one of " + known));
  }
  const fs::path gids = class_infiniband / result.device / "ports" / std::to_string(result.port) / "gids";
  for (int index = 0; index < kMaxGids; ++index) {
    const fs::path file = gids / std::to_string(index);
    std::error_code ignored;
    if (!fs::exists(file, ignored)) break;
    if (const std::optional<in_addr> address = read_ipv4_gid(file)) {
      result.address = *address;
      return result;
    }
  }
  throw Failure(SHARP_COLL_EDEV, "device " + result.device + ": port " + std::to_string(result.port) +
                                     " has no GID with an IPv4 address: give its interface an IPv4 address");
}

}  // namespace plugfest::sharp_coll
