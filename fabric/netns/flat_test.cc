// Fabrics with all hosts in one network namespace: contents, refusals, removal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "fabric/netns/fabric.h"
#include "fabric/system/testing/error_message.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {
namespace {

using testing::HasSubstr;

constexpr const char* kNames[] = {"a-eth0", "a-eth1", "b-eth0", "b-eth1", "c-eth0", "c-eth1"};

bool exists(const char* interface) { return if_nametoindex(interface) != 0; }

Options flat() {
  Options options;
  options.flat = true;
  return options;
}

std::string refusal(const std::string& topology) {
  return error_message([&] { const Fabric fabric(topology::named(topology), flat()); });
}

TEST(FlatFabric, CreatesAllInterfacesInOneNamespaceAndRemovesThem) {
  {
    Fabric fabric(topology::named("triangle"), flat());
    for (const char* name : kNames) EXPECT_TRUE(exists(name)) << name;
    const Finished addresses = fabric.run("a", {"ip", "-o", "-4", "address", "show", "dev", "b-eth0"});
    EXPECT_THAT(addresses.output, HasSubstr("192.168.100.2/24"));
    EXPECT_EQ(fabric.run("a", {"cat", "/proc/sys/net/ipv4/conf/a-eth0/accept_local"}).output, "1\n");
  }
  for (const char* name : kNames) EXPECT_FALSE(exists(name)) << name;
}

TEST(FlatFabric, GivesEachHostItsOwnSysfs) {
  Options options = flat();
  options.prepare_host = [](const topology::Host& host) {
    const std::string path = "/sys/class/infiniband/" + host.name;
    close(open(path.c_str(), O_CREAT | O_WRONLY, 0644));
  };
  Fabric fabric(topology::named("triangle"), options);
  EXPECT_EQ(fabric.run("a", {"ls", "/sys/class/infiniband"}).output, "a\n");
  EXPECT_EQ(fabric.run("b", {"ls", "/sys/class/infiniband"}).output, "b\n");
}

TEST(FlatFabric, RefusesASecondOne) {
  const Fabric fabric(topology::named("pair"), flat());
  EXPECT_THAT(refusal("mesh:4"), HasSubstr("another fabric uses this machine's network namespace"));
}

TEST(FlatFabric, RefusesSwitches) {
  EXPECT_THAT(refusal("star:3"), HasSubstr("topology star:3: its switches need network namespaces"));
}

TEST(FlatFabric, RefusesAnInterfaceNameInUse) {
  const Fabric fabric(topology::named("pair"), flat());
  EXPECT_THAT(refusal("pair"), HasSubstr("interface a-eth0 exists already: run sudo ip link del a-eth0"));
  EXPECT_TRUE(exists("a-eth0"));
}

TEST(FlatFabric, IsRemovedWhenItsProcessIsKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Fabric fabric(topology::named("triangle"), flat());
    (void)!write(ends[1], "x", 1);
    pause();
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_TRUE(exists("a-eth0"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // The cleanup process also holds the pipe, so end of file means that it has exited.
  while (read(ends[0], &byte, 1) > 0) continue;
  close(ends[0]);
  for (const char* name : kNames) EXPECT_FALSE(exists(name)) << name;
}

}  // namespace
}  // namespace plugfest::netns
