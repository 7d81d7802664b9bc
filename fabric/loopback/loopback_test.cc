// Hosts that are only names: what their processes are told, and that two runs keep off each other.
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <stdexcept>
#include <string>

#include "fabric/loopback/interfaces.h"
#include "fabric/loopback/layout.h"

namespace plugfest::loopback {
namespace {

TEST(Layout, GivesEachLinkASubnetOfTheMachine) {
  const Layout layout(topology::named("triangle"));
  const auto& a = layout.graph().host("a").interfaces;
  const auto& b = layout.graph().host("b").interfaces;
  EXPECT_EQ(a[0].address.value >> 24, 127u);
  EXPECT_EQ(a[0].address.value >> 8, b[0].address.value >> 8);
  EXPECT_NE(a[0].address.value, b[0].address.value);
  EXPECT_NE(a[0].address.value >> 8, a[1].address.value >> 8);
  EXPECT_EQ(a[0].prefix_length, 24);
}

TEST(Layout, KeepsOffTheAddressesOfAnother) {
  const Layout one(topology::named("pair"));
  const Layout other(topology::named("pair"));
  EXPECT_NE(one.graph().host("a").interfaces[0].address, other.graph().host("a").interfaces[0].address);
}

TEST(Layout, TellsAHostItsInterfaces) {
  const Layout layout(topology::named("triangle:mtu=1500"));
  const topology::Host& host = layout.graph().host("b");
  setenv(kVariable, layout.interfaces_of("b").c_str(), 1);
  const auto told = interfaces_of_this_process();
  unsetenv(kVariable);
  ASSERT_TRUE(told);
  ASSERT_EQ(told->size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*told)[i].name, host.interfaces[i].name);
    EXPECT_EQ(ntohl((*told)[i].address.s_addr), host.interfaces[i].address.value);
    EXPECT_EQ((*told)[i].prefix_length, 24);
    EXPECT_EQ((*told)[i].mtu_bytes, 1500);
  }
  EXPECT_NE((*told)[0].index, (*told)[1].index);
  EXPECT_NE((*told)[0].mac(), (*told)[1].mac());
}

TEST(Layout, SaysThatTheLoopbackInterfaceIsDown) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) GTEST_SKIP() << "namespaces are barred here";
  try {
    const Layout layout(topology::named("pair"));
    FAIL() << "a new network namespace has it down";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "--nic loopback: the loopback interface is down: run\n    sudo ip link set lo up");
  }
}

TEST(Interfaces, LeavesOutWhatItCannotRead) {
  for (const char* text : {"", "eth0", "eth0=/,", "eth0=1.2.3/24,9000", ";;=", "eth0=127.0.0.1/24"}) {
    setenv(kVariable, text, 1);
    EXPECT_EQ(interfaces_of_this_process()->size(), 0u) << text;
  }
  unsetenv(kVariable);
  EXPECT_FALSE(interfaces_of_this_process());
}

}  // namespace
}  // namespace plugfest::loopback
