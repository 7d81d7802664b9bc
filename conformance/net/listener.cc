// CN rules: listeners and their handles.
#include <fmt/format.h>

#include <set>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/peer.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(CN_01, Must, ApiRange::all(),  //
     .title = "listen works on every device",
     .text = "listen succeeds on each device, stores a comm and returns at once, even while other listeners are open.",
     .source = "transport/net.cc: recvProxySetup",
     .why = "If listen fails on a device, channels that use the device cannot be set up.",
     .check = "Opens two listeners on each device before it closes any.") {
  Rank rank = near_rank();
  std::vector<Listener> listeners;
  const int devices = rank.devices();
  for (int round = 0; round < 2; ++round)
    for (int index = 0; index < devices; ++index) listeners.push_back(rank.listen(Device{index}));
  for (Listener& listener : listeners) listener.close();
}

RULE(CN_02, Must, ApiRange::all(),  //
     .title = "listen writes at most 128 bytes of the handle",
     .text = "The handle has 128 bytes (NCCL_NET_HANDLE_MAXSIZE). The memory after it belongs to NCCL.",
     .source = "nccl_net.h: ncclNetHandle_t; NVIDIA/nccl #772",
     .why =
         "NCCL's handle is a member of a larger struct, which the bootstrap transports. A longer handle overwrites the "
         "members after it.",
     .check =
         "Places the 128 bytes before a canary and a guard page and calls listen, with zeroes and with ones in them.",
     .blind = "A handle that is longer only with some devices or addresses.",
     .faults = {{"NVIDIA/nccl#772", "a handle of 84 bytes was written where v4 had 64"},
                {"aws/aws-ofi-nccl#165", "the same overrun, seen as a smashed stack"}}) {
  Endpoint endpoint = near_endpoint();
  // In the rank, a canary and a guard page follow the handle: a write beyond the handle ends the rule.
  endpoint.rank.listen(endpoint.device).close();
  endpoint.rank.listen(endpoint.device, {.handle_fill = 0xff}).close();
}

RULE(CN_03, Should, ApiRange::all(),  //
     .title = "listen does not rely on a zeroed handle",
     .text = "listen initializes every byte of the handle that is used later, including the state of a connect.",
     .source = "transport/net.cc happens to pass zeroed handles; no document promises it",
     .why =
         "NCCL passes zeroed handles today, but no document promises it. In a handle with other content connect starts "
         "from an undefined state, and fails or crashes.",
     .check = "Fills the handle with 0xff before listen, connects with a copy, and delivers a message.",
     .blind = "Bytes that happen to be right when they are 0xff.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device, {.handle_fill = 0xff});
  auto [send, receive] = finish(sender.rank.connect(sender.device, listener.handle()), receiver.rank.accept(listener));
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

RULE(CN_04, Must, ApiRange::all(),  //
     .title = "a handle is valid in every process",
     .text =
         "The handle is self-contained: connect in another process needs only a copy of its bytes and follows no "
         "pointer into the listener's memory.",
     .source = "transport/net.cc: connect information travels through the bootstrap; NVIDIA/nccl #1073",
     .why = "NCCL copies the handle to another process on another host. A pointer in it is invalid there.",
     .check = "Copies the handle into a process of another host, connects and delivers a message.",
     .blind = "A pointer to memory that happens to be mapped at the same address in both processes.",
     .faults = {{"NVIDIA/nccl#1073", "the handle that connect got differed from the one that listen wrote"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  Connect connect = sender.rank.connect(sender.device, listener.handle());
  Accept accept = receiver.rank.accept(listener);
  auto [send, receive] = finish(connect, accept);
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

RULE(CN_15, Must, ApiRange::all(),  //
     .title = "a comm works after its listener is closed",
     .text = "NCCL closes the listener as soon as accept has returned a comm. The comm still works.",
     .source = "transport/net.cc: recvProxyConnect",
     .why = "NCCL closes the listener before the first isend. If this breaks the comm, every message fails.",
     .check = "Delivers a message, closes the listener, and delivers two more.",
     .blind = "Comms of the same listener that other processes still set up.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  Connect connect = sender.rank.connect(sender.device, listener.handle());
  Accept accept = receiver.rank.accept(listener);
  auto [send, receive] = finish(connect, accept);
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1001, .seed = random()()});
  deliver(sender, send, receiver, receive, {.size = 100000, .seed = random()()});
}

RULE(CN_17, Must, ApiRange::all(),  //
     .title = "closing an unused listener does not disturb connections",
     .text = "NCCL opens more listeners than it uses. Closing the others leaves existing connections as they are.",
     .source = "transport/net.cc: of the ranks that share a comm, one accepts and the others close their listeners",
     .why =
         "Connections that break when an unused listener is closed fail as soon as the first collective has chosen its "
         "comms.",
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

RULE(CN_18, Must, ApiRange::all(),  //
     .title = "a device has many listeners",
     .text =
         "A device has many listeners at once, one for each channel and peer. [S]: after a listen that failed, "
         "connections work again when listeners have been closed.",
     .source = "transport/net.cc: recvProxySetup for each channel and peer",
     .why = "If listen hangs or crashes for lack of listeners, large jobs do the same instead of reporting the limit.",
     .check =
         "Opens 512 listeners or as many as the limit of descriptors allows, at least 64, closes all but 48, and "
         "connects to the last one.",
     .faults = {{"NVIDIA/nccl#550", "a process ran out of descriptors while it connected"}}) {
  on_new_ranks([&] {
    Endpoint sender = near_endpoint(), receiver = far_endpoint();
    std::vector<Listener> listeners;
    bool refused = false;
    while (!refused && listeners.size() < 512) {
      const ListenOutcome outcome = receiver.rank.try_listen(receiver.device);
      refused = !outcome.ok();
      if (refused) {
        observe(fmt::format("listen returned {} with {} listeners open", result_name(outcome.code), listeners.size()));
        expect(listeners.size() >= 64, fmt::format("{} returned {} with {} listeners open, expected at least 64",
                                                   outcome.call, result_name(outcome.code), listeners.size()));
      } else {
        listeners.push_back(receiver.rank.listener(outcome));
      }
    }
    while (listeners.size() > 48) {
      listeners.back().close();
      listeners.pop_back();
    }
    try {
      auto [send, receive] =
          finish(sender.rank.connect(sender.device, listeners.back().handle()), receiver.rank.accept(listeners.back()));
      deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
    } catch (const CallFailed& failure) {
      if (!refused) throw;
      should(false, fmt::format("{}, after a listen had failed", failure.what()));
    }
  });
}

RULE(CN_19, Should, ApiRange::all(),  //
     .title = "one listener accepts several peers",
     .text =
         "Several connects to one listener, including connects from its own process, give as many comms, each with its "
         "own peer.",
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
    CN_21, Should, ApiRange::all(),  //
    .title = "connect to a listener that no longer exists fails",
    .text =
        "When the listener was closed, or its process has died, connect returns an error within bounded time, and no "
        "call waits. It may succeed if the kernel of the listener's host had accepted the connection before.",
    .source =
        "ncclCommInitRank has no timeout of its own; socket.cc: socketConnectCheck repeats a refused connection for 60 "
        "s",
    .why = "If connect never fails, the init of the other ranks never ends.",
    .check =
        "Closes the listener, or kills its process, before the first connect, and calls connect until it succeeds or "
        "fails, for at most 90 s.") {
  for (const bool kill : {false, true}) {
    on_new_ranks([&] {
      Endpoint sender = near_endpoint(retrying_briefly()), receiver = far_endpoint(retrying_briefly());
      Listener listener = receiver.rank.listen(receiver.device);
      Connect connect = sender.rank.connect(sender.device, listener.handle());
      if (kill)
        receiver.rank.kill();
      else
        listener.close();
      const std::string_view event = kill ? "the listener's process was killed" : "the listener was closed";
      for (StallLimit limit = detection_limit().times(1.5); !connect.done();) {
        const PointerOutcome outcome = connect.try_poll();
        if (!outcome.ok()) {
          observe(fmt::format("connect returned {} after {}", result_name(outcome.code), event));
          return;
        }
        expect(!limit.expired(), [&] {
          return fmt::format("{} still returned no comm {} s after {}, expected an error", outcome.call,
                             limit.seconds(), event);
        });
      }
      observe(fmt::format("connect returned a comm after {}", event));
    });
  }
}

RULE(CN_22, Should, ApiRange::all(),  //
     .title = "untrusted connections do not disturb accept",
     .text = "TCP connections to the listener that send garbage or nothing do not make accept fail or wait.",
     .source = "NVIDIA/nccl #1808, #914",
     .why =
         "Ports of a plugin are open to port scanners and to old peers that reuse an address. A wrong connection must "
         "not stop the job.",
     .check =
         "Opens TCP connections to all sockets on which the receiver listens, sends random bytes on some and nothing "
         "on the others, then connects normally.",
     .blind = "Plugins that do not listen on TCP, and untrusted packets of other protocols.",
     .faults = {{"NVIDIA/nccl#1808", "a foreign TCP request stopped NCCL's proxy thread"},
                {"NVIDIA/nccl#914", "a thread waited in recv for a connection that sent nothing"},
                {"NVIDIA/nccl#1612", "a connection that closed early failed the bootstrap"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  std::vector<std::byte> garbage(64);
  for (std::byte& byte : garbage) byte = static_cast<std::byte>(random()());
  const UntrustedConnections untrusted(receiver.rank.pid(), garbage);
  if (untrusted.count() == 0) observe("the receiver listens on no TCP socket");
  Accept accept = receiver.rank.accept(listener);
  // A plugin without connections may return a comm at once.
  for (int i = 0; i < 16 && !accept.done(); ++i) accept.poll();
  Connect connect = sender.rank.connect(sender.device, listener.handle());
  auto [send, receive] = finish(connect, accept);
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

}  // namespace plugfest::conformance
