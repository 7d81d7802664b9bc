// Two managers in this process, on two loopback addresses.
#include "fabric/rdma_cm/manager.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/rdma_cm/commands.h"
#include "fabric/rdma_cm/message.h"
#include "fabric/rdma_cm/testing.h"
#include "fabric/roce/wire/address.h"
#include "fabric/system/file.h"
#include "fabric/system/wait.h"

namespace plugfest::rdma_cm {
namespace {

constexpr std::uint16_t kPort = 7471;

// One device, with an address that no other test has at the same time.
class OneDevice final : public Devices {
 public:
  explicit OneDevice(int number) : address_(own_loopback_address(100 + number)) {}
  const Address& address() const { return address_; }
  std::optional<LocalDevice> with(const Address& address) const override {
    return address == address_ ? std::optional(LocalDevice{1, 0, 1, 0, IBV_MTU_4096}) : std::nullopt;
  }
  std::vector<Address> addresses() const override { return {address_}; }

 private:
  Address address_;
};

void wait_for_event(const Channel& channel) {
  pollfd readable = {.fd = channel.descriptor(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&readable, 1, 30'000), 1) << "no event";
}

// A host: its manager, and one channel. Managers live until the process ends.
class Host {
 public:
  explicit Host(int number) : devices_(*new OneDevice(number)), manager_(*new Manager(devices_)) {}
  ~Host() {
    const std::lock_guard guard(manager_.lock());
    manager_.close(channel_);
    ::close(channel_.descriptor());
  }

  Endpoint endpoint() const { return {devices_.address(), kPort}; }
  Channel& channel() { return channel_; }

  template <typename Body>
  auto locked(Body body) {
    const std::lock_guard guard(manager_.lock());
    return body(manager_);
  }

  std::uint32_t create(std::uint64_t uid) {
    return locked([&](Manager& manager) { return manager.create(channel_, uid, RDMA_PS_TCP, IBV_QPT_RC); });
  }

  std::uint32_t listener(int backlog) {
    const std::uint32_t handle = create(1000);
    locked([&](Manager& manager) {
      manager.bind(handle, endpoint(), 0);
      manager.listen(handle, backlog);
    });
    return handle;
  }

  std::uint32_t connect(std::uint64_t uid, const Endpoint& to) {
    const std::uint32_t handle = create(uid);
    rdma_ucm_conn_param parameters = {};
    parameters.qp_num = static_cast<std::uint32_t>(uid);
    parameters.responder_resources = 3;
    parameters.initiator_depth = 4;
    std::strcpy(reinterpret_cast<char*>(parameters.private_data), "hello");
    parameters.private_data_len = 6;
    locked([&](Manager& manager) { manager.resolve_address(handle, endpoint_without_port(), to, 0); });
    EXPECT_EQ(next(EventType::kAddressResolved).id, handle);
    locked([&](Manager& manager) { manager.resolve_route(handle); });
    EXPECT_EQ(next(EventType::kRouteResolved).id, handle);
    locked([&](Manager& manager) { manager.connect(handle, parameters); });
    return handle;
  }

  // Waits for the next event of any channel, and expects its type.
  rdma_ucm_event_resp next(EventType type, Channel& channel) {
    wait_for_event(channel);
    const auto event = locked([&](Manager& manager) { return manager.take_event(channel); });
    EXPECT_EQ(static_cast<EventType>(event.event), type);
    return event;
  }
  rdma_ucm_event_resp next(EventType type) { return next(type, channel_); }

 private:
  Endpoint endpoint_without_port() const { return {devices_.address(), 0}; }

  OneDevice& devices_;
  Manager& manager_;
  Channel channel_;
};

class Managers : public testing::Test {
 protected:
  // The errno value of a call of the client's manager, or 0.
  template <typename Call>
  int error_of(Call call) {
    try {
      client_.locked(call);
    } catch (const std::system_error& error) {
      return error.code().value();
    }
    return 0;
  }

  Host server_{0}, client_{1};
};

TEST_F(Managers, ConnectAndDisconnect) {
  server_.listener(0);
  const std::uint32_t active = client_.connect(7, server_.endpoint());
  const rdma_ucm_event_resp request = server_.next(EventType::kConnectRequest);
  EXPECT_EQ(request.uid, 1000u);
  EXPECT_STREQ(reinterpret_cast<const char*>(request.param.conn.private_data), "hello");
  EXPECT_EQ(request.param.conn.private_data_len, 56);  // the whole field of the packet
  EXPECT_EQ(request.param.conn.responder_resources, 4);
  EXPECT_EQ(request.param.conn.initiator_depth, 3);
  rdma_ucm_conn_param parameters = {};
  parameters.qp_num = 9;
  server_.locked([&](Manager& manager) { manager.accept(request.id, 8, parameters); });
  EXPECT_EQ(client_.next(EventType::kConnectResponse).param.conn.qp_num, 9u);
  client_.locked([&](Manager& manager) { manager.accept(active, 0, {}); });
  EXPECT_EQ(server_.next(EventType::kEstablished).uid, 8u);
  client_.locked([&](Manager& manager) { manager.disconnect(active); });
  server_.next(EventType::kDisconnected);
  client_.next(EventType::kDisconnected);
}

TEST_F(Managers, RejectARequestWhenTheBacklogIsFull) {
  server_.listener(1);
  client_.connect(1, server_.endpoint());
  server_.next(EventType::kConnectRequest);  // neither accepted nor rejected
  client_.connect(2, server_.endpoint());
  const rdma_ucm_event_resp rejected = client_.next(EventType::kRejected);
  EXPECT_EQ(rejected.uid, 2u);
  EXPECT_EQ(rejected.status, static_cast<std::uint32_t>(RejectReason::kNoResources));
}

// How often the other threads of this process, those of the managers, have waited. Reads files that are open, because
// the test uses up all descriptors.
class Waits {
 public:
  Waits() {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
      if (thread.path().filename() != std::to_string(::gettid()))
        files_.emplace_back(::open((thread.path() / "status").c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(wait_until([&] {
      return std::all_of(files_.begin(), files_.end(), [](const Descriptor& file) { return waits_of(file) > 0; });
    })) << "a thread did not begin to wait";
  }
  int count() const {
    int sum = 0;
    for (const Descriptor& file : files_) sum += waits_of(file);
    return sum;
  }

 private:
  static int waits_of(const Descriptor& status_file) {
    constexpr std::string_view kName = "\nvoluntary_ctxt_switches:";
    const std::string status = content_of(status_file.get());
    return std::atoi(status.c_str() + status.find(kName) + kName.size());
  }

  std::vector<Descriptor> files_;
};

TEST_F(Managers, AcceptAgainWhenADescriptorIsFree) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the vptr check of UndefinedBehaviorSanitizer opens a pipe, and fails when it gets no descriptor";
#endif
  server_.listener(2);
  const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const roce::SocketAddress server({.address = server_.endpoint().address, .port = kManagerPort}, 0);
  const Waits waits;
  const int before = waits.count();
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit low = {.rlim_cur = 256, .rlim_max = limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &low);
  std::vector<Descriptor> used;
  for (int copy = ::dup(client.get()); copy >= 0; copy = ::dup(client.get())) used.emplace_back(copy);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(::connect(client.get(), server.get(), server.length()), 0);
  EXPECT_TRUE(wait_until([&] { return waits.count() > before; })) << "nobody tried to accept the connection";
  used.clear();
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const MessageBytes request =
      encode({.qp_type = IBV_QPT_RC, .port_space = RDMA_PS_TCP, .destination_port = kPort, .mtu = IBV_MTU_4096});
  ASSERT_EQ(::send(client.get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  server_.next(EventType::kConnectRequest);
}

TEST_F(Managers, RejectTheRequestsOfADestroyedListener) {
  const std::uint32_t listener = server_.listener(0);
  client_.connect(1, server_.endpoint());
  ASSERT_NO_FATAL_FAILURE(wait_for_event(server_.channel()));
  server_.locked([&](Manager& manager) { EXPECT_EQ(manager.destroy(listener), 0u); });
  EXPECT_EQ(client_.next(EventType::kRejected).status, static_cast<std::uint32_t>(RejectReason::kConsumerDefined));
  EXPECT_TRUE(server_.channel().empty());
}

TEST_F(Managers, MovePendingEventsToTheNewChannel) {
  server_.listener(0);
  const std::uint32_t active = client_.connect(1, server_.endpoint());
  const std::uint32_t passive = server_.next(EventType::kConnectRequest).id;
  server_.locked([&](Manager& manager) { manager.reject(passive, 0, {}); });
  ASSERT_NO_FATAL_FAILURE(wait_for_event(client_.channel()));
  Channel other;
  client_.locked([&](Manager& manager) { EXPECT_EQ(manager.migrate(active, other), 2u); });
  EXPECT_TRUE(client_.channel().empty());
  client_.next(EventType::kRejected, other);
  client_.locked([&](Manager& manager) { manager.close(other); });
  ::close(other.descriptor());
}

TEST_F(Managers, MoveRequestsThatTheProgramHasNotSeenWithTheirListener) {
  const std::uint32_t listener = server_.listener(0);
  const std::uint32_t active = client_.connect(1, server_.endpoint());
  ASSERT_NO_FATAL_FAILURE(wait_for_event(server_.channel()));
  Channel other;
  server_.locked([&](Manager& manager) { manager.migrate(listener, other); });
  server_.locked([&](Manager& manager) { manager.close(server_.channel()); });
  const std::uint32_t passive = server_.next(EventType::kConnectRequest, other).id;
  server_.locked([&](Manager& manager) { manager.accept(passive, 8, {}); });
  client_.next(EventType::kConnectResponse);
  client_.locked([&](Manager& manager) { manager.accept(active, 0, {}); });
  EXPECT_EQ(server_.next(EventType::kEstablished, other).uid, 8u);
  server_.locked([&](Manager& manager) { manager.close(other); });
  ::close(other.descriptor());
}

TEST_F(Managers, RepeatARequestUntilAListenerExists) {
  server_.create(1);
  client_.connect(1, server_.endpoint());
  server_.listener(0);
  server_.next(EventType::kConnectRequest);
}

TEST_F(Managers, RejectARequestThatNobodyAccepts) {
  client_.connect(1, server_.endpoint());
  EXPECT_EQ(client_.next(EventType::kRejected).status, static_cast<std::uint32_t>(RejectReason::kInvalidServiceId));
}

TEST_F(Managers, RefuseCallsInTheWrongState) {
  const std::uint32_t handle = client_.create(1);
  EXPECT_EQ(error_of([](Manager& manager) { manager.destroy(4711); }), EINVAL);
  EXPECT_EQ(error_of([&](Manager& manager) { manager.resolve_route(handle); }), EINVAL);
  EXPECT_EQ(error_of([&](Manager& manager) { manager.connect(handle, {}); }), EINVAL);
  EXPECT_EQ(error_of([&](Manager& manager) { manager.accept(handle, 1, {}); }), EINVAL);
  EXPECT_EQ(error_of([&](Manager& manager) { manager.reject(handle, 0, {}); }), EINVAL);
  EXPECT_EQ(error_of([&](Manager& manager) { manager.disconnect(handle); }), EINVAL);
  EXPECT_EQ(error_of([&](Manager& manager) {
              manager.bind(handle, {Address(in_addr{htonl(0x08080808)}), 1}, 0);
            }),
            ENODEV);
  EXPECT_EQ(error_of([&](Manager& manager) { queue_pair_attributes(manager.find(handle), IBV_QPS_RTR); }), EINVAL);
}

TEST_F(Managers, RefuseASecondIdentifierWithAPort) {
  server_.listener(0);
  const std::uint32_t second = server_.create(2);
  EXPECT_THROW(server_.locked([&](Manager& manager) { manager.bind(second, server_.endpoint(), 0); }),
               std::system_error);
}

TEST_F(Managers, AnnounceMulticastGroupsUntilTheProgramLeaves) {
  const Address group(in_addr{htonl(0xef010203)});  // 239.1.2.3
  const std::uint32_t handle = client_.create(7);
  const auto error_of_join = [&](const Address& address) {
    return error_of([&](Manager& manager) { manager.join(handle, 70, address); });
  };
  EXPECT_EQ(error_of_join(group), EINVAL) << "the identifier has no device";
  client_.locked([&](Manager& manager) { manager.bind(handle, client_.endpoint(), 0); });
  EXPECT_EQ(error_of_join(client_.endpoint().address), EINVAL) << "not a group";

  const auto join = [&](std::uint64_t uid) {
    return client_.locked([&](Manager& manager) { return manager.join(handle, uid, group); });
  };
  const std::uint32_t reported = join(70), waiting = join(71);
  const rdma_ucm_event_resp event = client_.next(EventType::kMulticastJoin);
  EXPECT_EQ(event.id, reported);
  EXPECT_EQ(event.uid, 70u);
  EXPECT_EQ(event.param.ud.qp_num, 0xffffffu);
  EXPECT_EQ(event.param.ud.qkey, kDatagramQkey);
  EXPECT_EQ(std::memcmp(event.param.ud.ah_attr.grh.dgid, group.bytes.data(), group.bytes.size()), 0);
  const auto leave = [&](std::uint32_t membership) {
    return client_.locked([&](Manager& manager) { return manager.leave(membership); });
  };
  EXPECT_EQ(leave(reported), 1u);
  EXPECT_EQ(leave(waiting), 0u) << "its event is removed";
  EXPECT_TRUE(client_.channel().empty());
  join(72);
  EXPECT_EQ(client_.locked([&](Manager& manager) { return manager.destroy(handle); }), 0u);
  EXPECT_TRUE(client_.channel().empty()) << "events end with the identifier";
}

int error_of_command(Channel& channel, std::span<const std::byte> bytes) {
  try {
    execute(channel, bytes);
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

int error_of_command(Channel& channel, std::uint32_t number, std::uint16_t size) {
  std::array<std::byte, 64> bytes = {};
  const rdma_ucm_cmd_hdr header = {.cmd = number, .in = size, .out = 0};
  std::memcpy(bytes.data(), &header, sizeof(header));
  return error_of_command(channel, bytes);
}

TEST(Commands, AnswerAsTheKernel) {
  Channel channel;
  EXPECT_EQ(error_of_command(channel, std::span<const std::byte>()), EINVAL);
  EXPECT_EQ(error_of_command(channel, RDMA_USER_CM_CMD_CREATE_ID, 57), EINVAL) << "longer than the command";
  EXPECT_EQ(error_of_command(channel, RDMA_USER_CM_CMD_RESOLVE_ADDR, 0), ENOSYS) << "addresses of InfiniBand";
  EXPECT_EQ(error_of_command(channel, RDMA_USER_CM_CMD_LEAVE_MCAST, 16), EINVAL) << "no such membership";
  EXPECT_EQ(error_of_command(channel, 4711, 0), ENOSYS);
  EXPECT_EQ(error_of_command(channel, RDMA_USER_CM_CMD_DESTROY_ID, 16), EINVAL) << "no such identifier";
  ::fcntl(channel.descriptor(), F_SETFL, O_NONBLOCK);
  EXPECT_EQ(error_of_command(channel, RDMA_USER_CM_CMD_GET_EVENT, 8), EAGAIN);
  channel.close();
  EXPECT_EQ(error_of_command(channel, RDMA_USER_CM_CMD_DESTROY_ID, 16), EBADF);
  ::close(channel.descriptor());
}

}  // namespace
}  // namespace plugfest::rdma_cm
