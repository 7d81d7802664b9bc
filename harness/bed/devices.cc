#include "harness/bed/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fabric/system/text.h"
#include "harness/control/call.h"
#include "harness/control/launcher.h"
#include "harness/control/script.h"

namespace plugfest::bed {
namespace {

// Size of a trial's message, large enough that other traffic is small in comparison.
constexpr std::size_t kTrialBytes = 256 * 1024;
// Time limit of one trial connection and of all trials, as multiples of the time limit of a call. A connection through
// devices that do not reach each other may never make progress.
constexpr double kOneTrial = 0.2;
constexpr double kAllTrials = 3;

std::string interface_of(const std::string& rank) { return rank.substr(rank.rfind('.') + 1); }

// Bytes that an interface has sent and received.
struct TransferredBytes {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// The interfaces of the calling thread's network namespace, without lo.
std::map<std::string, TransferredBytes> transferred_here() {
  std::map<std::string, TransferredBytes> all;
  std::ifstream file("/proc/thread-self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream name(line.substr(0, colon)), numbers(line.substr(colon + 1));
    std::string interface;
    name >> interface;
    std::uint64_t skipped = 0;
    TransferredBytes traffic;
    numbers >> traffic.received;
    for (int i = 0; i < 7; ++i) numbers >> skipped;
    numbers >> traffic.sent;
    if (interface != "lo") all[interface] = traffic;
  }
  return all;
}

// Whether `pci_path` is the folder of the interface's PCI function, or of the interface itself.
bool is_pci_path_of(const std::string& pci_path, const std::string& interface) {
  const std::filesystem::path path(pci_path);
  std::error_code error;
  return path.is_absolute() &&
         (path.filename() == interface || std::filesystem::exists(path / "net" / interface, error) ||
          std::filesystem::exists(path / "infiniband" / interface, error));
}

using Clock = std::chrono::steady_clock;

enum class Trial { kFailed, kOtherInterface, kRight };

class Matching {
 public:
  Matching(control::Session& session, TestBed& bed, double call_seconds)
      : session_(session), bed_(bed), all_trials_(call_seconds * kAllTrials) {
    for (const std::string& rank : bed.interfaces()) ends_[rank] = read(rank);
  }

  void choose(const DeviceChoice& choice) {
    End& end = ends_.at(choice.host + "." + choice.interface);
    std::vector<std::string> names;
    for (const control::Properties& device : end.devices) names.push_back(device.name);
    const auto named = std::find(names.begin(), names.end(), choice.device);
    int index = static_cast<int>(named - names.begin());
    if (named == names.end()) {
      const bool number =
          choice.device.find_first_not_of("0123456789") == std::string::npos && choice.device.size() < 5;
      if (!number || std::stoul(choice.device) >= names.size()) {
        throw std::runtime_error(fmt::format("--device {}: the plugin has no device {} on host {}: {}", choice.text(),
                                             choice.device, choice.host, suggestion(choice.device, names)));
      }
      index = std::stoi(choice.device);
    }
    end.match(index, "--device");
  }

  void match_by_name_and_pci_path() {
    for (auto& [rank, end] : ends_) {
      if (end.index) continue;
      const std::optional<int> named = control::device_of_interface(end.devices, interface_of(rank));
      if (named)
        end.match(*named, "name");
      else
        match_by_pci_path(rank, end);
    }
  }

  void match_by_trial() {
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(all_trials_);
    for (const RankPath& path : bed_.paths()) {
      if (nothing_connects_) return;
      if (!ends_.at(path.near).index || !ends_.at(path.far).index) try_path(path, deadline);
    }
  }

  void match_by_order() {
    for (auto& [rank, end] : ends_) {
      if (end.index) continue;
      for (const int device : candidates(rank)) {
        const std::string& name = end.devices[static_cast<std::size_t>(device)].name;
        if (control::names_similar_interface(name, interface_of(rank))) continue;  // of another interface
        end.match(device, "order");
        break;
      }
    }
  }

  std::vector<DeviceMatch> matches() const {
    std::vector<DeviceMatch> all;
    for (const auto& [rank, end] : ends_) {
      if (!end.index) continue;
      const control::Properties& device = end.devices[static_cast<std::size_t>(*end.index)];
      all.push_back({rank, {*end.index, device.name, device.guid}, end.found_by});
    }
    return all;
  }

 private:
  // One rank, the devices of its host, and the device that belongs to the rank's interface.
  struct End {
    std::vector<control::Properties> devices;
    std::optional<int> index;
    std::string found_by;

    void match(int device, std::string how) {
      index = device;
      found_by = std::move(how);
    }
  };

  End read(const std::string& name) {
    End end;
    control::Lease lease = session_.lease();
    control::Rank rank = lease.rank(name);
    const int count = rank.devices();
    for (int index = 0; index < count; ++index) end.devices.push_back(rank.properties(control::Device{index}));
    lease.release(true);
    return end;
  }

  // Calls `function` in the namespace of the rank's host.
  void in_host_of(const std::string& rank, const std::function<void()>& function) {
    if (bed_.has_fabric())
      bed_.fabric().call(control::host_of(rank), function);
    else
      function();
  }

  void match_by_pci_path(const std::string& rank, End& end) {
    in_host_of(rank, [&] {
      std::vector<int> found;
      for (std::size_t i = 0; i < end.devices.size(); ++i) {
        const std::optional<std::string>& path = end.devices[i].pci_path;
        if (path && is_pci_path_of(*path, interface_of(rank))) found.push_back(static_cast<int>(i));
      }
      if (found.size() == 1) end.match(found.front(), "pciPath");
    });
  }

  // The devices that may belong to the rank: those that belong to no other interface of its host, starting with the
  // one at the position of the interface.
  std::vector<int> candidates(const std::string& rank) const {
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

  void try_path(const RankPath& path, Clock::time_point deadline) {
    std::vector<std::pair<int, int>> pairs;
    const std::vector<int> near = candidates(path.near), far = candidates(path.far);
    for (std::size_t sum = 0; sum + 1 < near.size() + far.size(); ++sum) {
      for (std::size_t i = 0; i < near.size() && i <= sum; ++i)
        if (sum - i < far.size()) pairs.emplace_back(near[i], far[sum - i]);
    }
    bool connects = false;
    for (const auto& [near_device, far_device] : pairs) {
      if (Clock::now() > deadline) return;
      // Rules send in both directions. A plugin's behavior in one direction may not depend on the sender's device.
      const std::pair near{path.near, near_device}, far{path.far, far_device};
      Trial outcome = send_between(near, far);
      if (outcome == Trial::kRight) outcome = send_between(far, near);
      connects = connects || outcome != Trial::kFailed;
      if (outcome != Trial::kRight) continue;
      for (const auto& [rank, device] : {near, far})
        if (!ends_.at(rank).index) ends_.at(rank).match(device, "trial");
      return;
    }
    nothing_connects_ = !connects;
  }

  // Connects a device of one rank to a device of another, sends a message, and determines which interfaces carried it.
  Trial send_between(const std::pair<std::string, int>& from, const std::pair<std::string, int>& to) {
    const std::map<std::string, TransferredBytes> from_before = traffic_of(from.first),
                                                  to_before = traffic_of(to.first);
    try {
      control::Lease lease = session_.lease();
      const control::Endpoint sender{lease.rank(from.first), control::Device{from.second}};
      const control::Endpoint receiver{lease.rank(to.first), control::Device{to.second}};
      const std::optional<control::Connection> connection = connect(sender, receiver);
      if (!connection) return Trial::kFailed;
      try {
        send_message(sender, receiver, *connection);
        lease.release(true);
      } catch (const control::Deviation&) {
        // The connection is sufficient; rules report failed transfers.
      }
    } catch (const control::Deviation&) {
      return Trial::kFailed;
    }
    const bool here =
        is_majority(from_before, traffic_of(from.first), interface_of(from.first), &TransferredBytes::sent) &&
        is_majority(to_before, traffic_of(to.first), interface_of(to.first), &TransferredBytes::received);
    return here ? Trial::kRight : Trial::kOtherInterface;
  }

  // Calls control::connect(); nullopt after a time limit.
  std::optional<control::Connection> connect(const control::Endpoint& from, const control::Endpoint& to) const {
    control::Rank sender = from.rank, receiver = to.rank;
    const control::Listener listener = receiver.listen(to.device);
    control::Connecting connecting(sender.connect(from.device, listener.handle()));
    control::Accepting accepting(receiver.accept(listener));
    for (control::StallLimit limit = connecting.stall_limit().times(kOneTrial); !limit.expired();) {
      const bool connected = connecting.turn();
      if (accepting.turn() && connected) return control::Connection{connecting.comm(), accepting.comm()};
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // leaves the processor to the ranks
    }
    return std::nullopt;
  }

  static void send_message(const control::Endpoint& from, const control::Endpoint& to,
                           const control::Connection& connection) {
    control::Rank sender = from.rank, receiver = to.rank;
    const control::Memory source = sender.allocate(kTrialBytes), target = receiver.allocate(kTrialBytes);
    control::Send send(connection.send, connection.send.reg(source));
    control::Receive receive(connection.receive, connection.receive.reg(target));
    control::finish({&send, &receive});
  }

  std::map<std::string, TransferredBytes> traffic_of(const std::string& rank) {
    std::map<std::string, TransferredBytes> traffic;
    if (bed_.has_fabric()) in_host_of(rank, [&] { traffic = transferred_here(); });
    return traffic;
  }

  // Whether `interface` carried most bytes of its host, or no traffic was counted.
  static bool is_majority(const std::map<std::string, TransferredBytes>& before,
                          const std::map<std::string, TransferredBytes>& after, const std::string& interface,
                          std::uint64_t TransferredBytes::*direction) {
    std::uint64_t total = 0, here = 0;
    for (const auto& [name, traffic] : after) {
      const auto old = before.find(name);
      const std::uint64_t bytes = traffic.*direction - (old == before.end() ? 0 : old->second.*direction);
      total += bytes;
      if (name == interface) here = bytes;
    }
    return here * 2 >= total;
  }

  control::Session& session_;
  TestBed& bed_;
  const std::chrono::duration<double> all_trials_;
  std::map<std::string, End> ends_;  // by rank
  bool nothing_connects_ = false;
};

}  // namespace

control::Environment without_devices() {
  return {{"PLUGFEST_ROCE_INTERFACES", "none"},
          {"NCCL_SOCKET_IFNAME", "none"},
          {"NCCL_IB_HCA", "none"},
          {"NCCL_MESH_HCA", "none"}};
}

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

std::vector<DeviceMatch> match_devices(control::Session& session, TestBed& bed,
                                       const std::vector<DeviceChoice>& choices, double call_seconds) {
  std::optional<Matching> matching;
  try {
    matching.emplace(session, bed, call_seconds);
  } catch (const std::exception&) {
    return {};  // a rule reports the reason
  }
  for (const DeviceChoice& choice : choices) matching->choose(choice);
  try {
    matching->match_by_name_and_pci_path();
    matching->match_by_trial();
    matching->match_by_order();
  } catch (const std::exception&) {
    // The run was interrupted, or ranks cannot be started; rules report that.
  }
  return matching->matches();
}

}  // namespace plugfest::bed
