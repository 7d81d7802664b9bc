#include "harness/cluster/nics.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "harness/report/text.h"

namespace plugfest::cluster {
namespace {

constexpr std::size_t kMaxNameBytes = 40;
constexpr int kMaxDevices = 64;
constexpr std::size_t kMaxAtOnce = 256;

std::string rank_name(const std::string& host, int index, const std::string& device) {
  const bool good = !device.empty() && device.size() <= kMaxNameBytes &&
                    std::all_of(device.begin(), device.end(),
                                [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
  return good ? fmt::format("{}.{}", host, device) : fmt::format("{}.dev{}", host, index);
}

HostDevices devices_of(control::Session& session, const std::string& host) {
  HostDevices found;
  try {
    control::Lease lease = session.lease();
    control::Rank rank = lease.rank(host + ".devices");
    found.plugin_name = report::printable(rank.library().name);
    const int count = std::min(rank.devices(), kMaxDevices);
    for (int i = 0; i < count; ++i) {
      const control::Properties properties = rank.properties(control::Device{i});
      Nic nic{.host = host, .name = rank_name(host, i, properties.name)};
      nic.device = {i, properties.name, properties.guid};
      nic.rail = static_cast<std::size_t>(i);
      nic.speed_mbit_per_second = properties.speed_mbit_per_second;
      const auto same = [&](const Nic& other) { return other.name == nic.name; };
      if (std::any_of(found.nics.begin(), found.nics.end(), same)) nic.name = fmt::format("{}.dev{}", host, i);
      found.nics.push_back(std::move(nic));
    }
    lease.release(false);  // ends the rank
    if (found.nics.empty()) found.broken = fmt::format("host {}: the plugin has no device", host);
  } catch (const std::exception& error) {
    found.nics.clear();
    found.broken = error.what();
  }
  return found;
}

}  // namespace

std::map<std::string, HostDevices> find_devices(control::Session& session, const std::vector<std::string>& hosts) {
  std::map<std::string, HostDevices> all;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  const auto find_remaining = [&] {
    for (std::size_t host = next++; host < hosts.size(); host = next++) {
      HostDevices found = devices_of(session, hosts[host]);
      const std::lock_guard lock(mutex);
      all.emplace(hosts[host], std::move(found));
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 1; i < std::min(hosts.size(), kMaxAtOnce); ++i) threads.emplace_back(find_remaining);
    } catch (const std::system_error&) {
      // The process has reached its limit of threads: fewer of them do the work.
    }
    find_remaining();
  }
  return all;
}

}  // namespace plugfest::cluster
