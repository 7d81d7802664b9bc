// UD multicast between two hosts.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "fabric/roce/qp/datagram.h"
#include "fabric/roce/verbs/tests/verbs_endpoint.h"
#include "fabric/roce/wire/address.h"

namespace plugfest::roce::verbs {
namespace {

constexpr std::uint32_t kQKey = 0x1234;
constexpr std::uint32_t kMulticastQueuePair = 0xffffff;

ibv_gid group(const char* text) {
  ibv_gid gid = {};
  in_addr ipv4 = {};
  if (inet_pton(AF_INET, text, &ipv4) == 1) return Address(ipv4).gid();
  inet_pton(AF_INET6, text, gid.raw);
  return gid;
}

// A datagram queue pair with the other objects of an endpoint. `flags`: ibv_qp_create_flags.
class DatagramEndpoint : public VerbsEndpoint {
 public:
  DatagramEndpoint(TwoHosts& fabric_hosts, const std::string& host_name, std::uint32_t flags = 0)
      : VerbsEndpoint(fabric_hosts, host_name) {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    hosts.fabric().call(host, [&] {
      ibv_qp_init_attr_ex wanted = {};
      wanted.send_cq = wanted.recv_cq = cq;
      wanted.cap = {16, 16, 1, 1, 0};
      wanted.qp_type = IBV_QPT_UD;
      wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
      wanted.pd = pd;
      wanted.create_flags = flags;
      qp = ibv_create_qp_ex(context, &wanted);
      ASSERT_NE(qp, nullptr) << std::strerror(errno);
      ibv_qp_attr attributes = {};
      attributes.port_num = 1;
      attributes.qkey = kQKey;
      attributes.qp_state = IBV_QPS_INIT;
      EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
      attributes.qp_state = IBV_QPS_RTR;
      EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
      attributes.qp_state = IBV_QPS_RTS;
      EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    });
  }

  int attach(const ibv_gid& group) {
    int error = 0;
    hosts.fabric().call(host, [&] { error = ibv_attach_mcast(qp, &group, 0); });
    return error;
  }
  int detach(const ibv_gid& group) { return ibv_detach_mcast(qp, &group, 0); }

  // Sends a text to a group or address.
  void send(const ibv_gid& to, std::uint32_t number, const std::string& text) {
    std::memcpy(memory.data(), text.data(), text.size());
    hosts.fabric().call(host, [&] {
      ibv_ah_attr attributes = {};
      attributes.is_global = 1;
      attributes.port_num = 1;
      attributes.grh.dgid = to;
      ibv_gid own = {};
      const auto is_ipv4 = [](const ibv_gid& gid) { return Address(gid).is_ipv4(); };
      while (ibv_query_gid(context, 1, attributes.grh.sgid_index, &own) == 0 && is_ipv4(own) != is_ipv4(to))
        ++attributes.grh.sgid_index;
      ibv_ah* const handle = ibv_create_ah(pd, &attributes);
      ASSERT_NE(handle, nullptr) << std::strerror(errno);
      ibv_send_wr request = {};
      request.opcode = IBV_WR_SEND;
      request.send_flags = IBV_SEND_SIGNALED;
      request.wr.ud = {handle, number, kQKey};
      EXPECT_EQ(post(request, segment(0, static_cast<std::uint32_t>(text.size()))), 0);
      EXPECT_EQ(ibv_destroy_ah(handle), 0);
    });
    EXPECT_EQ(wait_for_completion().opcode, IBV_WC_SEND);
  }

  // Waits for a datagram. Returns its text; its GRH is in memory.
  std::string receive() {
    const ibv_wc completion = wait_for_completion();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.opcode, IBV_WC_RECV);
    return {memory.data() + kGrhBytes, memory.data() + completion.byte_len};
  }
};

class Multicast : public testing::Test {
 protected:
  TwoHosts hosts_;
  DatagramEndpoint sender_{hosts_, "a"};
  DatagramEndpoint member_{hosts_, "b"};
  DatagramEndpoint other_{hosts_, "b"};
};

class Groups : public Multicast, public testing::WithParamInterface<const char*> {};

TEST_P(Groups, DeliverADatagramToAllMembers) {
  const ibv_gid to = group(GetParam());
  for (DatagramEndpoint* const endpoint : {&member_, &other_}) {
    EXPECT_EQ(endpoint->attach(to), 0);
    EXPECT_EQ(endpoint->attach(to), 0) << "nothing to do";
    endpoint->post_receive(1);
  }
  sender_.send(to, kMulticastQueuePair, "for all");
  for (DatagramEndpoint* const endpoint : {&member_, &other_}) {
    EXPECT_EQ(endpoint->receive(), "for all");
    const std::size_t length = Address(to).is_ipv4() ? 4 : 16;  // both headers end with the destination
    EXPECT_EQ(std::memcmp(endpoint->memory.data() + kGrhBytes - length, to.raw + sizeof(to) - length, length), 0);
    EXPECT_EQ(endpoint->detach(to), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Addresses, Groups, testing::Values("239.1.2.3", "ff02::123", "ff15::7"),
                         [](const auto& info) { return "Address" + std::to_string(info.index); });

TEST_F(Multicast, DeliversToASenderThatIsAMember) {
  const ibv_gid to = group("239.1.2.3");
  EXPECT_EQ(sender_.attach(to), 0);
  sender_.post_receive(1);
  sender_.send(to, kMulticastQueuePair, "to itself");
  EXPECT_EQ(sender_.receive(), "to itself");
  EXPECT_EQ(sender_.detach(to), 0);
}

TEST_F(Multicast, BlocksOwnDatagramsOnRequest) {
  const ibv_gid to = group("239.1.2.3");
  DatagramEndpoint blocking(hosts_, "a", IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
  EXPECT_EQ(blocking.attach(to), 0);
  blocking.post_receive(1);
  blocking.send(to, kMulticastQueuePair, "its own");
  sender_.send(to, kMulticastQueuePair, "of another queue pair");
  EXPECT_EQ(blocking.receive(), "of another queue pair");
  EXPECT_EQ(blocking.detach(to), 0);
}

TEST_F(Multicast, DeliversOnlyTheGroupsOfAMember) {
  const ibv_gid first = group("239.1.2.3"), second = group("239.1.2.4"), third = group("239.1.2.5");
  EXPECT_EQ(member_.attach(first), 0);
  EXPECT_EQ(member_.attach(second), 0);
  EXPECT_EQ(other_.attach(third), 0);
  EXPECT_EQ(member_.detach(first), 0);
  member_.post_receive(1);
  member_.post_receive(2);
  sender_.send(first, kMulticastQueuePair, "a group that it has left");
  sender_.send(third, kMulticastQueuePair, "a group of another queue pair");
  sender_.send(second, kMulticastQueuePair, "its group");
  EXPECT_EQ(member_.receive(), "its group");
  sender_.send(member_.gid(), member_.qp->qp_num, "itself");
  EXPECT_EQ(member_.receive(), "itself");
  EXPECT_EQ(member_.detach(second), 0);
  EXPECT_EQ(other_.detach(third), 0);
}

TEST_F(Multicast, RefusesWhatIsNoGroupOrNoDatagramQueuePair) {
  const ibv_gid to = group("239.1.2.3");
  EXPECT_EQ(member_.attach(member_.gid()), EINVAL) << "the address of a host";
  EXPECT_EQ(member_.attach(ibv_gid{}), EINVAL);
  EXPECT_EQ(member_.detach(to), EINVAL) << "not attached";
  VerbsEndpoint reliable(hosts_, "b");
  hosts_.fabric().call("b", [&] { EXPECT_EQ(ibv_attach_mcast(reliable.qp, &to, 0), EINVAL); });
}

TEST_F(Multicast, KeepsAQueuePairUntilItIsDetached) {
  const ibv_gid to = group("239.1.2.3");
  EXPECT_EQ(member_.attach(to), 0);
  EXPECT_EQ(ibv_destroy_qp(member_.qp), EBUSY);
  EXPECT_EQ(member_.detach(to), 0);
}

TEST_F(Multicast, HasAsManyGroupsAsTheDeviceReports) {
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(member_.context, &device), 0);
  ASSERT_LE(device.max_mcast_grp, 256);
  const auto nth = [](int number) { return group(("239.1.3." + std::to_string(number)).c_str()); };
  for (int i = 0; i < device.max_mcast_grp; ++i) EXPECT_EQ(member_.attach(nth(i)), 0);
  EXPECT_EQ(member_.attach(group("239.1.4.1")), ENOMEM);
  for (int i = 0; i < device.max_mcast_grp; ++i) EXPECT_EQ(member_.detach(nth(i)), 0);
}

}  // namespace
}  // namespace plugfest::roce::verbs
