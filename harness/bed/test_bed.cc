#include "harness/bed/test_bed.h"

#include <cctype>
#include <utility>

#include "harness/plugin/nccl.h"
#include "harness/plugin/resolve.h"

namespace plugfest::bed {

TestBed::TestBed(TestBedParts parts) : parts_(std::move(parts)), hosts_(ranks_of_hosts(parts_.graph)) {
  if (parts_.paths.empty()) parts_.paths = disjoint_paths(parts_.graph);
  if (!parts_.launcher) parts_.launcher = std::make_unique<control::FabricLauncher>(*parts_.fabric);
  if (parts_.supports_faults) {
    ranks_by_host_ = std::make_unique<faults::RanksByHost>(*parts_.launcher);
    injector_ = std::make_unique<faults::Injector>(*parts_.fabric, *ranks_by_host_);
  }
}

std::set<std::string> TestBed::interfaces() const {
  std::set<std::string> all;
  for (const RankPath& path : parts_.paths) all.insert({path.near, path.far});
  for (const std::vector<std::string>& of_rank : hosts_.interfaces) all.insert(of_rank.begin(), of_rank.end());
  all.erase("");
  return all;
}

control::Launcher& TestBed::launcher() {
  if (ranks_by_host_) return *ranks_by_host_;
  return *parts_.launcher;
}

control::Subject TestBed::subject(const std::string& plugin, int api, plugin::InterfaceKind interface) const {
  control::Subject subject{.plugin = plugin, .api = api, .interface = interface, .environment = parts_.environment};
  if (!plugin::is_builtin(plugin)) {
    for (const auto& [name, value] : plugin::sanitizer_environment(plugin))
      subject.environment.emplace_back(name, value);
    return subject;
  }
  if (!parts_.common_interface.empty()) {
    // IB listens on one address for all its devices, which every host must reach. Socket's devices are the interfaces
    // themselves, so that it gets those with a NIC.
    const bool sockets = plugin.size() > 5 && std::tolower(static_cast<unsigned char>(plugin[5])) == 's';
    const bool needs_nic_interfaces = sockets && parts_.common_interface == "oob0";
    subject.environment.emplace_back("NCCL_SOCKET_IFNAME", needs_nic_interfaces ? "eth" : parts_.common_interface);
  }
  subject.environment.emplace_back("NCCL_IB_TIMEOUT", "14");  // the default detects a dead peer after 34 s
  // Messages about a broken connection look up the peer's host name, and no name server answers in a host.
  subject.environment.emplace_back("RES_OPTIONS", "timeout:1 attempts:1");
  return subject;
}

}  // namespace plugfest::bed
