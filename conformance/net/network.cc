// ER, CN and IN rules: failures of the network between two live ranks, unequal MTUs, and the traffic class of packets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "conformance/net/script/peer.h"
#include "conformance/net/script/process_state.h"
#include "conformance/net/script/traffic.h"

namespace plugfest::conformance {

RULE_ON(LostPeer, ER_09, Should, ApiRange::all(),  //
        .title = "sends fail after the link went down",
        .text = "When the link to a live peer goes down and stays down, sends end in an error from isend or test.",
        .source = "NVIDIA/nccl #992, #1777: otherwise only a watchdog ends the hang; RC gives up after its retries",
        .why = "Without an error, a user cannot distinguish a job whose link is down from a job that computes.",
        .check = "Takes the link down and leaves it down with receives posted, then sends until an error comes.",
        .blind = "Plugins that accept one receive at a time: the rule does not apply to them.",
        .faults = {{"NVIDIA/nccl#992", "a lost peer left the others waiting"}}, .alone = true) {
  // These variables make NVIDIA's IB transport and the mesh plugin report a dead link after about half a second.
  connect_ranks({{"NCCL_IB_TIMEOUT", "12"}, {"NCCL_MESH_TIMEOUT", "12"}});
  // A sender that does not know of a posted receive sends nothing, so nothing can fail. Once the first message has
  // arrived, the sender knows of the other receives.
  Traffic traffic(stall_limit());
  traffic.send(connection_->send, from_->buffer(0, kSize));
  traffic.posted_receive(connection_->receive, receives_[0]);
  traffic.finish();
  const faults::ActiveFault down = take_link_down();
  constexpr std::string_view kEvent = "the link went down";
  if (receives_.size() == 1) not_applicable("the plugin accepts one receive at a time, so a later send is deferred");
  check_code(send_until_error(kEvent, {}, 1), kEvent);
}

RULE_ON(LostPeer, ER_10, Should, ApiRange::all(),  //
        .title = "a short link failure loses no message",
        .text =
            "Messages that are in flight when the link goes down arrive intact if the link returns while the transport "
            "still retransmits. A port that goes down does not end a comm.",
        .source = "links flap; RC and TCP retransmit; for net_ib a port error is a warning and does not end a comm",
        .why =
            "Links go down for short times. RC and TCP retransmit, so a plugin that gives up at the first port event "
            "is less robust than its transport.",
        .check = "Posts messages while the link is down, brings it up, and requires all of them to arrive.",
        .blind = "Failures longer than the transport retransmits.", .alone = true) {
  connect_ranks();
  constexpr int kRounds = 10;  // few, so that the link is up again before the transport reports an error
  Traffic traffic(stall_limit());
  std::vector<std::uint64_t> seeds;
  {
    const faults::ActiveFault down = take_link_down();
    for (std::size_t i = 0; i < kMessages; ++i) {
      seeds.push_back(random()());
      sender_->rank.fill(from_->slice(i * kSize, kSize), seeds.back());
      traffic.send(connection_->send, from_->buffer(i * kSize, kSize));
      if (i < receives_.size())
        traffic.posted_receive(connection_->receive, receives_[i]);
      else
        traffic.receive(connection_->receive, to_->buffer(i * kSize, kSize));
    }
    for (int round = 0; round < kRounds; ++round) traffic.step();
  }
  traffic.finish();
  for (std::size_t i = 0; i < kMessages; ++i)
    require_content(receiver_->rank, to_->slice(i * kSize, kSize), seeds[i], fmt::format("message {}", i));
}

namespace {

// Base of rules whose calls may return any result code from 0 to 6.
class AnyOutcome : public RuleBody {
 protected:
  void connect_ranks() {
    endpoint_ = near_endpoint({.fresh = true});
    peer_ = far_endpoint({.fresh = true});
    out_ = connect(*endpoint_, *peer_);
    back_ = connect(*peer_, *endpoint_);
    from_ = allocate(endpoint_->rank, out_->send, kSize);
    to_ = allocate(endpoint_->rank, back_->receive, kSize);
    Receive receive(back_->receive, to_->buffer());
    if (receive.post()) received_ = receive.request();
  }

  // Makes 50 rounds of isend, and of test of the send and the receive. As NCCL, makes no call on a comm after an error.
  void call() {
    for (int round = 0; round < 50; ++round) {
      if (!sent_ && !send_failed_) {
        const PointerOutcome outcome = out_->send.try_isend(from_->buffer());
        send_failed_ = !outcome.ok();
        if (outcome.ok() && outcome.value != 0) sent_ = out_->send.request(outcome.value);
      }
      if (!test(sent_)) send_failed_ = true;
      test(received_);
    }
  }

  void close() {
    for (Registered* memory : {&*from_, &*to_}) memory->registration.try_dereg();
    out_->send.try_close();
    back_->receive.try_close();
  }

  static constexpr std::size_t kSize = 1 << 20;
  std::optional<Endpoint> endpoint_, peer_;

 private:
  // Returns false if test failed.
  static bool test(std::optional<Request>& request) {
    if (!request) return true;
    const TestOutcome outcome = request->try_test();
    if (!outcome.ok() || outcome.done == 1) request.reset();
    return outcome.ok();
  }

  std::optional<Connection> out_, back_;
  std::optional<Registered> from_, to_;
  std::optional<Request> sent_, received_;
  bool send_failed_ = false;
};

}  // namespace

RULE_ON(AnyOutcome, ER_11, Must, ApiRange::all(),  //
        .title = "network failures end in an error code",
        .text =
            "After a link failure during traffic, or a change of the peer's address, operations may end in errors. The "
            "plugin does not abort, exit, hang or return a code that NCCL does not define.",
        .source = "one plugin calls exit inside test; port errors and GID changes come as asynchronous events",
        .why =
            "Port errors and changed addresses arrive as asynchronous events, on a thread that cannot return a code. A "
            "plugin that ends the process there leaves the application no choice.",
        .check =
            "Takes a link down during traffic and changes the peer's address, and checks that each call returns a code "
            "from 0 to 6.",
        .blind = "Other asynchronous events of a NIC.",
        .faults = {{"google/nccl-plugin-gpudirecttcpx", "test calls exit"}}, .alone = true) {
  connect_ranks();
  {
    const faults::ActiveFault down = take_link_down();
    call();
  }
  call();
  {
    const auto address_change = change_far_address();
    if (!address_change) observe("the peer's address did not change: its subnet has no free address");
    call();
  }
  call();
  close();
  require_success(endpoint_->rank.try_devices());
}

RULE(CN_33, Should, ApiRange::all(),  //
     .title = "hosts with unequal MTUs can connect",
     .text = "Two ranks connect and exchange large messages although the MTUs of their interfaces differ.",
     .source = "transport/net_ib: both sides exchange their MTUs and use the smaller one",
     .why = "If the plugin uses the larger MTU, small messages arrive and the first large one hangs.",
     .check = "Sets a smaller MTU at one host, connects in both directions and sends messages of 100 kB.",
     .blind = "Switches that drop packets which both hosts can send.",
     .faults = {{"NVIDIA/nccl#2135", "transfers hung between hosts with unequal MTUs"}}, .alone = true) {
  const auto small_mtu = shrink_far_mtu(1200);
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection out = connect(sender, receiver), back = connect(receiver, sender);
  for (const std::size_t size : {std::size_t{100}, std::size_t{100'000}}) {
    deliver(sender, receiver, out, {.size = size, .seed = random()()});
    deliver(receiver, sender, back, {.size = size, .seed = random()()});
  }
}

RULE(IN_20, Should, ApiRange::from(10),  //
     .title = "packets carry the traffic class",
     .text =
         "On RoCE a trafficClass of 0 to 255 is the type of service of the packets that a context sends. On other "
         "networks the plugin defines its meaning.",
     .source = "nccl.h: ncclConfig_t::trafficClass; transport/net_ib.cc: ah_attr.grh.traffic_class",
     .why =
         "Switches choose the queue of a packet, and whether it may be dropped, by its DSCP. With another one the "
         "traffic of a communicator disturbs other traffic, or is disturbed by it.",
     .check =
         "Calls init with the traffic class 40 (DSCP 10), sends messages, and looks for RoCEv2 packets with this DSCP "
         "that leave the sender's host.",
     .blind = "Packets of the receiver, and packets of a hardware NIC, which its host does not see.",
     .faults = {{"aws/aws-ofi-nccl", "the traffic class of the configuration was not applied"}}) {
  constexpr int kTrafficClass = 40, kEcnBits = 3;
  for (Rank rank : {near_rank({.state = RankState::kLoaded, .fresh = true}),
                    far_rank({.state = RankState::kLoaded, .fresh = true})}) {
    rank.init({.context = Preset::kNull, .traffic_class = kTrafficClass});
    rank.devices();
  }
  const Endpoint sender = near_endpoint(), receiver = far_endpoint();
  PacketWatch packets(sender.rank.pid());
  const Connection connection = connect(sender, receiver);
  deliver(sender, receiver, connection, {.size = 20000, .seed = random()()});
  std::set<int> classes = packets.roce_classes();
  if (classes.empty()) not_applicable("no RoCEv2 packet left the sender's host");
  expect(std::any_of(classes.begin(), classes.end(), [](int one) { return (one & ~kEcnBits) == kTrafficClass; }), [&] {
    return fmt::format("rank {}: init got trafficClass {}, but RoCEv2 packets have the traffic classes {}",
                       sender.rank.name(), kTrafficClass, fmt::join(classes, ", "));
  });
}

}  // namespace plugfest::conformance
