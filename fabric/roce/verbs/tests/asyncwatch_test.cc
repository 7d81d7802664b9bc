// Port events as reported by ibv_asyncwatch.
#include <gtest/gtest.h>

#include "fabric/roce/verbs/testing/two_hosts.h"

namespace plugfest::roce {
namespace {

TEST(Asyncwatch, ReportsPortDownPortUpAndAddressChange) {
  PLUGFEST_NEEDS_PROGRAM("ibv_asyncwatch");
  TwoHosts hosts;
  HostProcess watch = hosts.start("a", {"ibv_asyncwatch", "-d", "roce_eth0"});
  watch.wait_until_printed("roce_eth0: async event FD");
  hosts.fabric().set_interface_up("b", "eth0", false);
  watch.wait_until_printed("event_type IBV_EVENT_PORT_ERR (10), port 1");
  hosts.fabric().set_interface_up("b", "eth0", true);
  watch.wait_until_printed("event_type IBV_EVENT_PORT_ACTIVE (9), port 1");
  const topology::Ipv4Address before = hosts.fabric().graph().host("a").interfaces.at(0).address;
  hosts.fabric().change_address("a", "eth0", before, {before.value + 76});
  watch.wait_until_printed("event_type IBV_EVENT_GID_CHANGE (18), port 1");
}

}  // namespace
}  // namespace plugfest::roce
