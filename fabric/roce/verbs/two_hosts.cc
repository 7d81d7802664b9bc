// Runs programs in emulated hosts for tests.
#include "fabric/roce/verbs/two_hosts.h"

#include "fabric/roce/verbs/sysfs_view.h"
#include "fabric/topology/graph.h"

namespace plugfest::roce {
namespace {

netns::Options with_sysfs_view() {
  netns::Options options;
  options.prepare_host = [](const topology::Host&) { write_sysfs_view_of_this_host("/sys/class/infiniband"); };
  return options;
}

}  // namespace

TwoHosts::TwoHosts() : fabric_(topology::named("triangle"), with_sysfs_view()) {}

std::string TwoHosts::address_of_a() const { return fabric_.graph().host("a").interfaces.at(0).address.text(); }

Running TwoHosts::start(const std::string& host, const std::vector<std::string>& argv) {
  return Running(fabric_, host, argv, {{"LD_LIBRARY_PATH", PLUGFEST_ROCE_LIBRARY_FOLDER}});
}

}  // namespace plugfest::roce
