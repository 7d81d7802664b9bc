// CN rules: many listeners and connections at the same time.
#include <fmt/format.h>

#include <set>
#include <utility>

#include "conformance/net/script/flow.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(CN_11, Must, ApiRange::all(),  //
     .title = "a process connects over any of its devices to any device",
     .text =
         "Each device of a process connects to all devices of its peers that its network reaches. The connections of "
         "several devices exist at the same time.",
     .source = "transport/net.cc: the graph search and PXN choose the devices of both ends independently",
     .why = "Otherwise, channels over the second NIC of a host fail, or all use the first one.",
     .check =
         "Connects every two of three ranks in both directions, each over the devices of their link, and then sends a "
         "message on each connection.",
     .blind = "Devices of different rails, unless the topology routes between them.", .ranks = 3) {
  struct Pair {
    Endpoint from, to;
    Connection connection;
  };
  constexpr std::size_t kRanks = 3;
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < kRanks; ++i) {
    for (std::size_t j = 0; j < kRanks; ++j) {
      if (i == j) continue;
      Endpoint from = endpoint(i, j), to = endpoint(j, i);
      pairs.push_back({from, to, connect(from, to)});
    }
  }
  for (const Pair& pair : pairs) deliver(pair.from, pair.to, pair.connection, {.size = 3000, .seed = random()()});
}

RULE(CN_17, Must, ApiRange::all(),  //
     .title = "closing an unused listener does not disturb connections",
     .text = "NCCL opens more listeners than it uses. Closing the others leaves existing connections as they are.",
     .source = "transport/net.cc: of the ranks that share a comm, one accepts and the others close their listeners",
     .why = "Otherwise, connections fail as soon as the first collective has chosen its comms.",
     .check = "Opens three listeners, connects over the second one, closes all three and sends messages.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  std::vector<Listener> listeners;
  for (int i = 0; i < 3; ++i) listeners.push_back(receiver.rank.listen(receiver.device));
  auto [send, receive] =
      finish(sender.rank.connect(sender.device, listeners[1].handle()), receiver.rank.accept(listeners[1]));
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  for (Listener& listener : listeners) {
    listener.close();
    deliver(sender, send, receiver, receive, {.size = 20000, .seed = random()()});
  }
}

RULE(
    CN_18, Must, ApiRange::all(),  //
    .title = "a device has many listeners",
    .text = "A device has many listeners at once, one for each channel and peer.",
    .source = "transport/net.cc: recvProxySetup for each channel and peer",
    .why = "Otherwise, jobs of many ranks hang or crash instead of reporting the limit.",
    .check =
        "Opens 512 listeners or as many as the limit of descriptors allows, at least 64, and connects to the last one.",
    .faults = {{"NVIDIA/nccl#550", "a process ran out of descriptors while it connected"}}) {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  std::vector<Listener> listeners;
  while (listeners.size() < 512) {
    const ListenOutcome outcome = receiver.rank.try_listen(receiver.device);
    if (!outcome.ok()) {
      observe(fmt::format("listen returned {} with {} listeners open", result_name(outcome.code), listeners.size()));
      expect(listeners.size() >= 64, fmt::format("{} returned {} with {} listeners open, expected at least 64",
                                                 outcome.call, result_name(outcome.code), listeners.size()));
      break;
    }
    listeners.push_back(receiver.rank.listener(outcome));
  }
  while (listeners.size() > 48) {
    listeners.back().close();
    listeners.pop_back();
  }
  auto [send, receive] =
      finish(sender.rank.connect(sender.device, listeners.back().handle()), receiver.rank.accept(listeners.back()));
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

RULE(CN_19, Should, ApiRange::all(),  //
     .title = "one listener accepts several peers",
     .text = "Several connects to one listener, also from its own process, give as many comms, each with its own peer.",
     .source = "the bootstrap ring of the SHARP plugin; GIN: ncclGinConnectOnce accepts once for each rank",
     .why = "The SHARP plugin and GIN accept several peers on one listener, and cannot connect otherwise.",
     .check =
         "Connects four times from the peer and once from its own process, accepts five times, and sends on each "
         "comm.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kConnections = 5, kSize = 800;
  Listener listener = receiver.rank.listen(receiver.device);
  std::vector<Connecting> connects;
  for (std::size_t i = 0; i < kConnections; ++i) {
    Endpoint& from = i + 1 < kConnections ? sender : receiver;
    connects.emplace_back(from.rank.connect(from.device, listener.handle()));
  }
  std::vector<Accepting> accepts;
  for (std::size_t i = 0; i < kConnections; ++i) {
    accepts.emplace_back(receiver.rank.accept(listener));
    std::vector<Step*> steps = {&accepts.back()};
    // This accept may serve any of the connects.
    for (StallLimit limit = stall_limit(); !accepts.back().done();) {
      expect(!limit.expired(), fmt::format("{} did not finish, with {} connects to the listener",
                                           accepts.back().describe(), kConnections));
      for (Connecting& connect : connects) connect.turn();
      accepts.back().turn();
    }
  }
  std::vector<Step*> rest;
  for (Connecting& connect : connects) rest.push_back(&connect);
  finish(rest);

  const std::uint64_t seed = random()();
  std::vector<Registered> from, to;
  Traffic traffic(stall_limit());
  for (std::size_t i = 0; i < kConnections; ++i) {
    Endpoint& source = i + 1 < kConnections ? sender : receiver;
    from.push_back(allocate(source.rank, connects[i].comm(), kSize));
    source.rank.fill(from.back().memory, seed + i);
    to.push_back(allocate(receiver.rank, accepts[i].comm(), kSize));
    traffic.receive(accepts[i].comm(), to.back().buffer());
    traffic.send(connects[i].comm(), from.back().buffer());
  }
  traffic.finish();
  std::set<std::size_t> arrived;
  for (std::size_t comm = 0; comm < kConnections; ++comm) {
    for (std::size_t i = 0; i < kConnections; ++i)
      if (receiver.rank.check(to[comm].memory, seed + i)) arrived.insert(i);
  }
  expect(arrived.size() == kConnections,
         fmt::format("rank {}: messages of {} of {} peers arrived, each on a comm of one listener, expected all",
                     receiver.rank.name(), arrived.size(), kConnections));
}

RULE(
    CN_24, Must, ApiRange::all(),  //
    .title = "connections are set up beside traffic",
    .text = "listen, connect, accept and close on the service thread neither wait for the progress thread nor stop it.",
    .source = "proxy.cc: ncclProxyService and ncclProxyProgress are two threads",
    .why = "Otherwise, a new communicator deadlocks while another one is in use.",
    .check = "Connects and closes eight times while a stream of messages runs between the same ranks.",
    .blind = "Stalls that are shorter than the time limit.",
    .faults = {{"aws/aws-ofi-nccl#1055", "the service and progress threads waited for each other's locks"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection busy = connect(sender, receiver);
  during_streams(busy, random(), 8, [&] {
    Connection other = connect(sender, receiver);
    other.send.close();
    other.receive.close();
  });
}

}  // namespace plugfest::conformance
