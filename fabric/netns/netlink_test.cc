#include "fabric/netns/netlink.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace plugfest::netns {
namespace {

constexpr int kNoInterface = 1'000'000;

std::string error_of(Netlink& netlink, int requests, const std::string& purpose) {
  for (int i = 0; i < requests; ++i) netlink.add(up_request(kNoInterface, true, purpose));
  try {
    netlink.flush();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(NetlinkTest, ReportsTheAnswersOfABatchAfterAnotherBatchOverflowed) {
  const int lowest_free = dup(STDERR_FILENO);
  close(lowest_free);
  Netlink netlink;
  const int no_room = 0;
  ASSERT_EQ(setsockopt(lowest_free, SOL_SOCKET, SO_RCVBUF, &no_room, sizeof(no_room)), 0);
  EXPECT_EQ(error_of(netlink, 50, "first"), "first: netlink: Out of memory");
  EXPECT_EQ(error_of(netlink, 1, "second"), "second: No such device");
}

}  // namespace
}  // namespace plugfest::netns
