#include "harness/bed/transport.h"

#include <algorithm>

#include "fabric/roce/capture/packet_log.h"
#include "fabric/roce/counters/counters.h"
#include "harness/bed/library_folder.h"

namespace plugfest::bed {

VerbsLibrary verbs_library(control::Session& session, const TestBed& bed) {
  control::Lease lease = session.lease();
  const std::vector<std::string> mapped = lease.rank(bed.paths().front().near).process().libraries;
  lease.release(true);
  const auto found = std::find_if(mapped.begin(), mapped.end(), [](const std::string& file) {
    return file.find("/libibverbs.so") != std::string::npos;
  });
  if (found == mapped.end()) return {};
  std::error_code error;
  const std::filesystem::path nic = std::filesystem::path(library_folder()) / "roce";
  return {*found, std::filesystem::equivalent(std::filesystem::path(*found).parent_path(), nic, error)};
}

std::uint64_t sent_packets(TestBed& bed) {
  std::uint64_t sum = 0;
  if (!bed.has_fabric()) return sum;
  for (const topology::Host& host : bed.fabric().graph().hosts) {
    bed.fabric().call(host.name, [&] {
      for (const roce::DeviceCounters& device : roce::read_counters()) sum += device.counters.sent_packets;
    });
  }
  return sum;
}

void capture_packets(TestBed& bed, const std::filesystem::path& file) {
  for (const std::string& interface : bed.interfaces()) {
    const std::size_t dot = interface.rfind('.');
    bed.fabric().call(interface.substr(0, dot),
                      [&] { roce::set_device_log("/sys/class/infiniband/roce_" + interface.substr(dot + 1), file); });
  }
}

}  // namespace plugfest::bed
