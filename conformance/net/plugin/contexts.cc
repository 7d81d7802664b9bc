// IN rules: contexts and the arguments of init.
#include <fmt/format.h>

#include "conformance/net/script/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connection;
using control::Device;
using control::Endpoint;
using control::Listener;
using control::Rank;
using control::RankState;

RULE(IN_02, Should, ApiRange::from(11),  //
     .title = "init stores a context",
     .text = "An init that succeeds writes *ctx. Any value is allowed, also NULL. NCCL's variable holds NULL before.",
     .source = "plugin/net.cc: ncclNetPluginInit passes the address of comm->netContext",
     .why = "NCCL passes what it finds there to listen, connect and finalize.",
     .check = "Calls init with a pattern in *ctx, which must be gone after the call.") {
  const control::PointerOutcome outcome =
      near_rank({.state = RankState::kLoaded, .fresh = true}).try_init({.context = control::Preset::kPoison});
  control::require_success(outcome);
  expect(!outcome.untouched, fmt::format("{} returned Success and did not write *ctx", outcome.call));
}

RULE(IN_09, Must, ApiRange::from(11),  //
     .title = "finalize may run on another thread than init",
     .text = "Each finalize belongs to one init and may run on any thread.",
     .source = "plugin/net.cc: ncclNetFinalize runs on the thread that destroys the communicator",
     .why = "Applications destroy communicators on threads of their choice.",
     .check = "Calls init on one thread, connects, and calls finalize on another. The first context still works.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  const std::uint64_t context = sender.rank.on("creator").init();
  Listener listener = receiver.rank.listen(receiver.device);
  auto [send, receive] = control::finish(sender.rank.connect(sender.device, listener.handle(), {.context = context}),
                                         receiver.rank.accept(listener));
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  send.close();
  sender.rank.on("destroyer").finalize(context);
  Connection other = control::connect(sender, receiver);
  deliver(sender, receiver, other, {.size = 1000, .seed = random()()});
}

RULE(
    IN_11, Must, ApiRange::from(11),  //
    .title = "one context serves many connections",
    .text =
        "Communicators that share resources use the context of their parent. No init belongs to them, so the number of "
        "listeners and comms does not depend on the number of inits.",
    .source = "plugin/net.cc: ncclNetInitFromParent", .why = "ncclCommSplit with shared resources fails.",
    .check = "Opens 32 listeners and 24 connections with one context, and sends a message over the last one.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  std::vector<Listener> listeners;
  for (int i = 0; i < 32; ++i) listeners.push_back(receiver.rank.listen(receiver.device));
  std::optional<Connection> last;
  for (int i = 0; i < 24; ++i) last = control::connect(sender, receiver);
  deliver(sender, receiver, *last, {.size = 1000, .seed = random()()});
}

RULE(IN_12, Must, ApiRange::from(10),  //
     .title = "init takes any configuration and keeps no pointer",
     .text =
         "config points to an object that is gone after the call. A trafficClass of -1 means undefined. A value that "
         "the "
         "network does not know does not make init fail.",
     .source = "plugin/net.cc: ncclNetPluginInit passes the address of a local variable; plugin/net/net_v10.cc",
     .why = "Communicators of users who set trafficClass cannot be created, or connects read invalid memory.",
     .check = "Calls init with four traffic classes, overwrites the configuration, connects and sends a message.") {
  for (const int traffic_class : {-1, 0, 106, 255}) {
    on_new_ranks([&] {
      const auto start = [&](Rank rank) {
        rank.init({.context = control::Preset::kNull, .traffic_class = traffic_class});
        rank.devices();
      };
      start(near_rank({.state = RankState::kLoaded}));
      start(far_rank({.state = RankState::kLoaded}));
      const Endpoint sender = near_endpoint(), receiver = far_endpoint();
      const Connection connection = control::connect(sender, receiver);
      deliver(sender, receiver, connection, {.size = 1000, .seed = random()()});
    });
  }
}

RULE(IN_14, Must, ApiRange::from(10),  //
     .title = "the profiler callback may be NULL",
     .text = "Without a profiler NCCL passes NULL, and phandles may be NULL or not.",
     .source = "plugin/net.cc; CollNet and GIN inits have no profiler callback",
     .why = "The plugin jumps to address 0 at its first event.",
     .check = "Calls init with NULL and sends a message whose phandles are not NULL.") {
  Rank near = near_rank({.state = RankState::kLoaded, .fresh = true});
  Rank far = far_rank({.state = RankState::kLoaded, .fresh = true});
  for (Rank rank : {near, far}) {
    rank.init({.context = control::Preset::kNull, .profiler = false});
    rank.devices();
  }
  const Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kSize = 1000;
  const Registered from = allocate(sender.rank, connection.send, kSize);
  const Registered to = allocate(receiver.rank, connection.receive, kSize);
  const std::uint64_t seed = random()();
  near.fill(from.memory, seed);
  const control::PostOptions with_handle = {.phandle = 0x7000};
  control::Receive receive(connection.receive, to.buffer(), 0, with_handle);
  control::Send send(connection.send, from.buffer(), 0, with_handle);
  control::finish({&receive, &send});
  require_content(far, to.memory, seed, "a message without a profiler");
}

}  // namespace plugfest::conformance
