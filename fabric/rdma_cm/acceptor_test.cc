#include "fabric/rdma_cm/acceptor.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "fabric/rdma_cm/testing.h"
#include "fabric/roce/wire/address.h"

namespace plugfest::rdma_cm {
namespace {

// An acceptor on a loopback address that no other test has, for whose requests no identifier listens.
class AcceptorTest : public testing::Test {
 protected:
  struct Parts : Polling {
    Acceptor acceptor{poller, [](const Port&, const Message&, Descriptor&) { return false; }};
  };

  AcceptorTest() {
    static int tests = 0;  // acceptors of earlier tests listen until the process ends
    address_ = own_loopback_address(97 - tests++);
    Parts& parts = *new Parts;
    const std::lock_guard guard(parts.lock);
    parts.acceptor.listen(address_);
  }

  Descriptor connect() const {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const roce::SocketAddress to({.address = address_, .port = kManagerPort}, 0);
    EXPECT_EQ(::connect(socket.get(), to.get(), to.length()), 0);
    return socket;
  }

  // Waits until `socket` has bytes or its end.
  static void wait_for(const Descriptor& socket) {
    pollfd readable = {.fd = socket.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&readable, 1, 30'000), 1);
  }

 private:
  Address address_;
};

TEST_F(AcceptorTest, RejectsARequestForAPortThatNobodyHasBound) {
  const Descriptor socket = connect();
  const MessageBytes request = encode({.type = MessageType::kRequest,
                                       .qp_type = IBV_QPT_RC,
                                       .port_space = RDMA_PS_TCP,
                                       .destination_port = 9,
                                       .mtu = IBV_MTU_1024});
  ASSERT_EQ(::write(socket.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  MessageBytes bytes;
  ASSERT_EQ(::recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL), static_cast<ssize_t>(bytes.size()));
  const std::optional<Message> answer = decode(bytes);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->type, MessageType::kReject);
  EXPECT_EQ(answer->reason, RejectReason::kInvalidServiceId);
}

TEST_F(AcceptorTest, ClosesAConnectionWhoseFirstMessageIsNoRequest) {
  const Descriptor socket = connect();
  const MessageBytes reply = encode({.type = MessageType::kReply, .port_space = RDMA_PS_TCP, .mtu = IBV_MTU_1024});
  ASSERT_EQ(::write(socket.get(), reply.data(), reply.size()), static_cast<ssize_t>(reply.size()));
  wait_for(socket);
  char byte = 0;
  EXPECT_EQ(::read(socket.get(), &byte, 1), 0);
}

TEST_F(AcceptorTest, ClosesTheOldestOf257ConnectionsWithoutARequest) {
  std::vector<Descriptor> sockets;
  for (int i = 0; i < 257; ++i) sockets.push_back(connect());
  wait_for(sockets.front());
  char byte = 0;
  EXPECT_EQ(::read(sockets.front().get(), &byte, 1), 0);
  EXPECT_EQ(::recv(sockets.back().get(), &byte, 1, MSG_DONTWAIT), -1) << "the others stay";
}

}  // namespace
}  // namespace plugfest::rdma_cm
