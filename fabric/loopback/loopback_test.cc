#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include "fabric/loopback/interfaces.h"
#include "fabric/loopback/layout.h"
#include "fabric/system/testing.h"

namespace plugfest::loopback {
namespace {

TEST(Layout, GivesEachLinkALoopbackSubnet) {
  const Layout layout(topology::named("triangle"));
  const auto& a = layout.graph().host("a").interfaces;
  const auto& b = layout.graph().host("b").interfaces;
  EXPECT_EQ(a[0].address.value >> 24, 127u);
  EXPECT_EQ(a[0].address.value >> 8, b[0].address.value >> 8);
  EXPECT_NE(a[0].address.value, b[0].address.value);
  EXPECT_NE(a[0].address.value >> 8, a[1].address.value >> 8);
  EXPECT_EQ(a[0].prefix_length, 24);
}

TEST(Layout, AvoidsTheAddressesOfAnotherLayout) {
  const Layout first(topology::named("pair"));
  const Layout second(topology::named("pair"));
  EXPECT_NE(first.graph().host("a").interfaces[0].address, second.graph().host("a").interfaces[0].address);
}

TEST(Layout, PassesInterfacesToAHost) {
  const Layout layout(topology::named("triangle:mtu=1500"));
  const topology::Host& host = layout.graph().host("b");
  setenv(kVariable, layout.interfaces_of("b").c_str(), 1);
  const auto passed = interfaces_of_this_process();
  unsetenv(kVariable);
  ASSERT_TRUE(passed);
  ASSERT_EQ(passed->size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*passed)[i].name, host.interfaces[i].name);
    EXPECT_EQ(ntohl((*passed)[i].address.s_addr), host.interfaces[i].address.value);
    EXPECT_EQ((*passed)[i].prefix_length, 24);
    EXPECT_EQ((*passed)[i].mtu_bytes, 1500);
  }
  EXPECT_NE((*passed)[0].index, (*passed)[1].index);
  EXPECT_NE((*passed)[0].mac(), (*passed)[1].mac());
}

TEST(Layout, ReportsThatTheLoopbackInterfaceIsDown) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) GTEST_SKIP() << "namespaces are forbidden here";
  EXPECT_EQ(error_message([] { Layout(topology::named("pair")); }),
            "--nic loopback: the loopback interface is down: run\n    sudo ip link set lo up");
}

TEST(InterfacesOfThisProcess, ExcludeInvalidEntries) {
  for (const char* text : {"", "eth0", "eth0=/,", "eth0=1.2.3/24,9000", ";;=", "eth0=127.0.0.1/24"}) {
    setenv(kVariable, text, 1);
    EXPECT_EQ(interfaces_of_this_process()->size(), 0u) << text;
  }
  unsetenv(kVariable);
  EXPECT_FALSE(interfaces_of_this_process());
}

}  // namespace
}  // namespace plugfest::loopback
