#include "harness/bed/devices.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

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

std::vector<control::Properties> devices_of(control::Session& session, const std::string& name) {
  control::Lease lease = session.lease();
  control::Rank rank = lease.rank(name);
  std::vector<control::Properties> devices;
  const int count = rank.devices();
  for (int index = 0; index < count; ++index) devices.push_back(rank.properties(control::Device{index}));
  lease.release(true);
  return devices;
}

enum class Trial { kFailed, kOtherInterface, kRight };

// Determines on the hosts which devices belong to which ranks.
class Trials {
 public:
  Trials(control::Session& session, TestBed& bed, DeviceTable& table, double call_seconds)
      : session_(session), bed_(bed), table_(table), all_trials_(call_seconds * kAllTrials) {}

  void match_by_pci_path() {
    for (const std::string& rank : table_.unmatched()) {
      in_host_of(rank, [&] {
        std::vector<int> found;
        int index = 0;
        for (const control::Properties& device : table_.devices(rank)) {
          if (device.pci_path && is_pci_path_of(*device.pci_path, interface_of(rank))) found.push_back(index);
          ++index;
        }
        if (found.size() == 1) table_.match(rank, found.front(), "pciPath");
      });
    }
  }

  void match_by_trial() {
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(all_trials_);
    for (const RankPath& path : bed_.paths()) {
      if (nothing_connects_) return;
      if (!table_.is_matched(path.near) || !table_.is_matched(path.far)) try_path(path, deadline);
    }
  }

 private:
  // Calls `function` in the namespace of the rank's host.
  void in_host_of(const std::string& rank, const std::function<void()>& function) {
    if (bed_.has_fabric())
      bed_.fabric().call(control::host_of(rank), function);
    else
      function();
  }

  void try_path(const RankPath& path, Clock::time_point deadline) {
    std::vector<std::pair<int, int>> pairs;
    const std::vector<int> near = table_.candidates(path.near), far = table_.candidates(path.far);
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
      for (const auto& [rank, device] : {near, far}) table_.match(rank, device, "trial");
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
  DeviceTable& table_;
  const std::chrono::duration<double> all_trials_;
  bool nothing_connects_ = false;
};

}  // namespace

control::Environment without_devices() {
  return {{"PLUGFEST_ROCE_INTERFACES", "none"},
          {"NCCL_SOCKET_IFNAME", "none"},
          {"NCCL_IB_HCA", "none"},
          {"NCCL_MESH_HCA", "none"}};
}

std::vector<DeviceMatch> match_devices(control::Session& session, TestBed& bed,
                                       const std::vector<DeviceChoice>& choices, double call_seconds) {
  DeviceTable table;
  try {
    for (const std::string& rank : bed.interfaces()) table.add(rank, devices_of(session, rank));
  } catch (const std::exception&) {
    return {};  // a rule reports the reason
  }
  for (const DeviceChoice& choice : choices) table.choose(choice);
  try {
    Trials trials(session, bed, table, call_seconds);
    table.match_by_name();
    trials.match_by_pci_path();
    trials.match_by_trial();
    table.match_by_order();
  } catch (const std::exception&) {
    // The run was interrupted, or ranks cannot be started; rules report that.
  }
  return table.matches();
}

}  // namespace plugfest::bed
