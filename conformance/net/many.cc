// CN rules: many listeners and connections, one after another and at the same time.
#include <fmt/format.h>

#include <set>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Accept;
using control::Connection;
using control::Endpoint;
using control::Listener;

RULE(CN_11, Must, ApiRange::all(),  //
     .title = "a process connects over any of its devices to any device",
     .text =
         "Each device of a process connects to the devices of its peers that its network reaches, whatever their "
         "numbers. The connections of several devices exist at the same time.",
     .source = "transport/net.cc: the graph search and PXN choose the devices of both ends independently",
     .why = "Channels over the second NIC of a host fail, or all use the first one.",
     .check =
         "Connects every two of three ranks in both directions, each over the devices of their link, and then sends "
         "a message on each connection.",
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
      pairs.push_back({from, to, control::connect(from, to)});
    }
  }
  for (const Pair& pair : pairs) deliver(pair.from, pair.to, pair.connection, {.size = 3000, .seed = random()()});
}

RULE(CN_17, Must, ApiRange::all(),  //
     .title = "closing an unused listener does not disturb connections",
     .text = "NCCL opens more listeners than it uses. Closing the others leaves existing connections as they are.",
     .source = "transport/net.cc: of the ranks that share a comm, one accepts and the others close their listeners",
     .why = "Connections fail as soon as the first collective has chosen its comms.",
     .check = "Opens three listeners, connects over the second one, closes all three and sends messages.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  std::vector<Listener> listeners;
  for (int i = 0; i < 3; ++i) listeners.push_back(receiver.rank.listen(receiver.device));
  auto [send, receive] =
      control::finish(sender.rank.connect(sender.device, listeners[1].handle()), receiver.rank.accept(listeners[1]));
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  for (Listener& listener : listeners) {
    listener.close();
    deliver(sender, send, receiver, receive, {.size = 20000, .seed = random()()});
  }
}

RULE(CN_18, Must, ApiRange::all(),  //
     .title = "many listeners, and no more descriptors",
     .text =
         "A device has many listeners at once, one for each channel and peer. When the process has no descriptor left, "
         "listen, connect and accept return errors, and work again when there are some.",
     .source = "transport/net.cc: recvProxySetup for each channel and peer",
     .why = "Jobs of many ranks hang or crash instead of reporting the limit.",
     .check =
         "Opens 512 listeners or as many as the limit of descriptors allows, at least 64, and connects to the last "
         "one. Then "
         "takes the descriptors away, makes some calls, gives them back, and connects.",
     .faults = {{"NVIDIA/nccl#550", "a process ran out of descriptors while it connected"}}) {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  std::vector<Listener> listeners;
  while (listeners.size() < 512) {
    const control::ListenOutcome outcome = receiver.rank.try_listen(receiver.device);
    if (!outcome.ok()) {
      observe(fmt::format("listen returned {} with {} listeners open", control::result_name(outcome.code),
                          listeners.size()));
      expect(listeners.size() >= 64, fmt::format("{} returned {} with {} listeners open, expected at least 64",
                                                 outcome.call, control::result_name(outcome.code), listeners.size()));
      break;
    }
    listeners.push_back(receiver.rank.listener(outcome));
  }
  while (listeners.size() > 48) {
    listeners.back().close();
    listeners.pop_back();
  }
  auto [send, receive] = control::finish(sender.rank.connect(sender.device, listeners.back().handle()),
                                         receiver.rank.accept(listeners.back()));
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  {
    const NoMoreDescriptors none(receiver.rank);
    receiver.rank.try_listen(receiver.device);
    control::Connect unanswered = receiver.rank.connect(receiver.device, listeners.front().handle());
    Accept accept = receiver.rank.accept(listeners.front());
    for (int i = 0; i < 8 && !unanswered.done() && unanswered.try_poll().ok(); ++i) continue;
    for (int i = 0; i < 8 && !accept.done() && accept.try_poll().ok(); ++i) continue;
  }
  Connection after = control::connect(sender, receiver);
  deliver(sender, receiver, after, {.size = 1000, .seed = random()()});
}

RULE(CN_19, Should, ApiRange::all(),  //
     .title = "one listener accepts several peers",
     .text = "Several connects to one listener, also from its own process, give as many comms, each with its own peer.",
     .source = "the bootstrap ring of the SHARP plugin; GIN: ncclGinConnectOnce accepts once for each rank",
     .why = "SHARP and GIN cannot connect.",
     .check =
         "Connects four times from the peer and once from its own process, accepts five times, and sends on each "
         "comm.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kConnections = 5, kSize = 800;
  Listener listener = receiver.rank.listen(receiver.device);
  std::vector<control::Connecting> connects;
  for (std::size_t i = 0; i < kConnections; ++i) {
    Endpoint& from = i + 1 < kConnections ? sender : receiver;
    connects.emplace_back(from.rank.connect(from.device, listener.handle()));
  }
  std::vector<control::Accepting> accepts;
  for (std::size_t i = 0; i < kConnections; ++i) {
    accepts.emplace_back(receiver.rank.accept(listener));
    std::vector<control::Step*> steps = {&accepts.back()};
    // This accept may serve any of the connects.
    for (control::StallLimit limit = stall_limit(); !accepts.back().done();) {
      expect(!limit.expired(), fmt::format("{} did not finish, with {} connects to the listener",
                                           accepts.back().describe(), kConnections));
      for (control::Connecting& connect : connects) connect.turn();
      accepts.back().turn();
    }
  }
  std::vector<control::Step*> rest;
  for (control::Connecting& connect : connects) rest.push_back(&connect);
  control::finish(rest);

  const std::uint64_t seed = random()();
  std::vector<Registered> from, to;
  std::vector<control::Receive> receives;
  std::vector<control::Send> sends;
  for (std::size_t i = 0; i < kConnections; ++i) {
    Endpoint& source = i + 1 < kConnections ? sender : receiver;
    from.push_back(allocate(source.rank, connects[i].comm(), kSize));
    source.rank.fill(from.back().memory, seed + i);
    to.push_back(allocate(receiver.rank, accepts[i].comm(), kSize));
    receives.emplace_back(accepts[i].comm(), to.back().buffer());
    sends.emplace_back(connects[i].comm(), from.back().buffer());
  }
  std::vector<control::Step*> all;
  for (control::Receive& receive : receives) all.push_back(&receive);
  for (control::Send& send : sends) all.push_back(&send);
  control::finish(all);
  std::set<std::size_t> arrived;
  for (std::size_t comm = 0; comm < kConnections; ++comm) {
    for (std::size_t i = 0; i < kConnections; ++i) {
      if (receiver.rank.check(to[comm].memory, seed + i)) arrived.insert(i);
    }
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
    .why = "A new communicator deadlocks while another one is in use.",
    .check = "Connects and closes eight times while a stream of messages runs between the same ranks.",
    .blind = "Stalls that end.",
    .faults = {{"aws/aws-ofi-nccl#1055", "the service and progress threads waited for each other's locks"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection busy = control::connect(sender, receiver);
  during_streams(busy, random(), 8, [&] {
    Connection other = control::connect(sender, receiver);
    other.send.close();
    other.receive.close();
  });
}

RULE(
    CN_27, Should, ApiRange::all(),  //
    .title = "connections can be made and closed many times",
    .text =
        "Two processes connect and close again any number of times. No identifier runs out, and no descriptor, thread "
        "or "
        "memory stays behind. Descriptors may close some time after the call.",
    .source = "applications that create and destroy communicators in a loop", .why = "A job fails after hours.",
    .check = "Connects and closes 300 times between two processes, and compares their descriptors, threads and memory.",
    .blind = "Leaks of less than 2 KiB for each connection, and identifiers with more than 8 bits.",
    .faults = {{"aws/aws-ofi-nccl#310", "identifiers of comms ran out"},
               {"aws/aws-ofi-nccl#1182", "each closed receive comm left memory behind"},
               {"NVIDIA/nccl#127", "descriptors leaked while connecting"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const int cycles = repeated(300);
  constexpr std::uint64_t kMemoryEach = 2048;
  const auto cycle = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Connection connection = control::connect(sender, receiver);
      connection.send.close();
      connection.receive.close();
    }
  };
  cycle(20);
  for (control::Rank rank : {sender.rank, receiver.rank}) rank.free_attempts();
  const control::ProcessFacts sender_before = sender.rank.process(), receiver_before = receiver.rank.process();
  cycle(cycles);
  const auto compare = [&](control::Rank rank, const control::ProcessFacts& before) {
    rank.free_attempts();
    const control::ProcessFacts after = settled(rank, stall_limit(), [&](const control::ProcessFacts& now) {
      return now.file_descriptors <= before.file_descriptors + 4 && now.threads <= before.threads + 4;
    });
    const auto at_most = [&](std::uint64_t limit, std::uint64_t now, std::string_view what) {
      should(now <= limit, [&] {
        return fmt::format("rank {}: {} {} after {} connections were closed, expected at most {}", rank.name(), now,
                           what, cycles, limit);
      });
    };
    at_most(static_cast<std::uint64_t>(before.file_descriptors) + 4, static_cast<std::uint64_t>(after.file_descriptors),
            "file descriptors");
    at_most(static_cast<std::uint64_t>(before.threads) + 4, static_cast<std::uint64_t>(after.threads), "threads");
    at_most((before.resident_bytes + static_cast<std::uint64_t>(cycles) * kMemoryEach) / 1024 + 1024,
            after.resident_bytes / 1024, "KiB of resident memory");
  };
  compare(sender.rank, sender_before);
  compare(receiver.rank, receiver_before);
}

}  // namespace plugfest::conformance
