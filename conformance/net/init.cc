// IN rules: init, finalize, contexts and the logger.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"
#include "harness/bed/devices.h"

namespace plugfest::conformance {

RULE(IN_01, Must, ApiRange::from(11),  //
     .title = "each init gives a working context",
     .text =
         "NCCL calls init once per communicator, several times in one process. Each context is independent, or shared "
         "and reference-counted.",
     .source = "plugin/net.cc: ncclNetPluginInit",
     .why =
         "From v11 on NCCL calls init for each communicator. A plugin that refuses the second one limits a process to "
         "one communicator.",
     .check = "Calls init three times, uses each context, and finalizes them out of order while the others are used.",
     .blind = "Whether contexts share state that only concurrent traffic shows.") {
  Rank rank = near_rank({.state = RankState::kLoaded});
  std::vector<std::uint64_t> contexts;
  for (int i = 0; i < 3; ++i) contexts.push_back(rank.init());
  const int devices = rank.devices();
  if (devices == 0) skip(fmt::format("rank {} has no device", rank.name()));

  auto use = [&](std::uint64_t context) {
    const int count = rank.devices();
    expect(count == devices,
           fmt::format("rank {}: devices wrote {} after another init or finalize, expected {} as before", rank.name(),
                       count, devices));
    rank.properties(Device{0});
    Listener listener = rank.listen(Device{0}, {.context = context});
    listener.close();
  };
  for (const std::uint64_t context : contexts) use(context);
  // The order differs from the order of init: the application chooses the order in which communicators are destroyed.
  rank.finalize(contexts[1]);
  use(contexts[0]);
  use(contexts[2]);
  rank.finalize(contexts[2]);
  use(contexts[0]);
  rank.finalize(contexts[0]);
}

RULE(
    IN_03, Must, ApiRange::up_to(10),  //
    .title = "a second init without an unload succeeds",
    .text = "When init is called again in the same process without an unload, it succeeds and the plugin works.",
    .source = "plugin/net/net_v10.cc: the shim's count falls to 0 while the library can stay loaded; aws-ofi-nccl #905",
    .why =
        "Up to v10 NCCL counts communicators itself and calls init again after the count has fallen to 0, although the "
        "library may still be mapped. If that init fails, the process cannot create another communicator.",
    .check = "Calls init a second time in both processes, without an unload, then connects and delivers a message.",
    .blind = "A plugin that fails only at the third or a later init.",
    .faults = {{"aws/aws-ofi-nccl#905", "a second init without an unload failed"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  // The last communicator is destroyed and a new one is created while the library stays mapped.
  for (Rank rank : {sender.rank, receiver.rank}) {
    rank.finalize(rank.contexts().front());
    rank.init();
  }
  Connection connection = connect(sender, receiver);
  deliver(sender, receiver, connection, {.size = 1000, .seed = random()()});
}

namespace {

// A rank whose environment hides the devices of every NIC kind.
RankOptions without_devices() {
  return {.state = RankState::kLoaded, .fresh = true, .environment = bed::without_devices()};
}

// Errors: `Skipped` when the plugin finds devices that the environment cannot hide.
void require_no_device(Rank& rank) {
  const int devices = rank.devices();
  if (devices == 0) return;
  throw Skipped(fmt::format("rank {} has {} that the harness cannot hide", rank.name(),
                            counted(static_cast<std::size_t>(devices), "device")));
}

}  // namespace

RULE(IN_05, Should, ApiRange::all(),  //
     .title = "a host without devices gives an error or zero devices",
     .text = "On a host without devices, init returns an error, or devices returns Success and 0. Nothing crashes.",
     .source = "ext-net README: devices; plugin/net.cc: ncclNetPluginInit",
     .why =
         "NCCL asks every plugin on every host. A plugin that crashes on a host without its hardware ends the "
         "application, although NCCL could use its next transport.",
     .check =
         "Hides the devices of all NIC kinds by environment variables and calls init and devices. An error or zero "
         "devices is accepted.",
     .blind = "Hosts with unusual devices: the rule is skipped if the plugin still finds some.",
     .faults = {{"NVIDIA/nccl#1091", "a plugin crashed in init on a host with more than 16 NICs"}}) {
  Rank rank = near_rank(without_devices());
  const PointerOutcome init = rank.try_init();
  if (!init.ok()) {
    observe(fmt::format("init returned {}", result_name(init.code)));
    return;
  }
  require_no_device(rank);
  observe("init succeeded, devices wrote 0");
}

RULE(IN_06, Must, ApiRange::from(11),  //
     .title = "finalize is safe after a failed init",
     .text =
         "NCCL 2.28 and 2.29 call finalize after an init that failed, with the context that it stored, or NULL. [S]: "
         "finalize(NULL) is safe at any time.",
     .source = "plugin/net.cc: error path of ncclNetPluginInit in NCCL 2.28 and 2.29",
     .why =
         "If finalize crashes after a failed init, the application ends, although NCCL could fall back to another "
         "network.",
     .check =
         "Hides the devices, calls init, and calls finalize if it failed. Calls finalize(NULL), if it is set before "
         "init, in a new process.",
     .blind = "An init that fails for another reason.",
     .faults = {{"NVIDIA/nccl#2200", "a context leaked when NCCL fell back after init"}}) {
  Rank rank = near_rank(without_devices());
  const PointerOutcome init = rank.try_init({.context = Preset::kNull});
  if (init.ok())
    observe("init succeeded without devices: finalize after a failed init was not tried");
  else
    rank.try_finalize(init.value);
  // A plugin may set finalize in init: see LD-09.
  probe([&] {
    Rank loaded = near_rank({.state = RankState::kLoaded});
    if (loaded.has_function("finalize")) loaded.try_finalize(0);
  });
}

RULE(
    IN_07, Must, ApiRange::from(11),  //
    .title = "finalize is safe when there is no device",
    .text = "finalize follows an init after which devices wrote 0.",
    .source = "plugin/net.cc: ncclNetPluginInit finalizes a plugin without a device",
    .why =
        "If finalize crashes without a device, the application ends, although NCCL could fall back to another network.",
    .check = "Hides the devices, calls init and devices, and calls finalize with the context.") {
  Rank rank = near_rank(without_devices());
  const std::uint64_t context = context_of_init(rank, {.context = Preset::kNull});
  require_no_device(rank);
  rank.finalize(context);
}

RULE(
    IN_08, Must, ApiRange::from(11),  //
    .title = "finalize of one context does not affect others",
    .text =
        "Communicators are destroyed independently: after finalize of one context, comms of other contexts still work.",
    .source = "plugin/net.cc: ncclNetFinalize per communicator",
    .why =
        "Communicators of one process are destroyed one by one while others still run. A finalize that releases shared "
        "state breaks the others.",
    .check =
        "Opens three contexts in each of two processes, connects with the second, finalizes the first and the third, "
        "and delivers messages before, between and after.",
    .blind = "Finalize while another thread is in a call.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  const std::uint64_t sender_context = sender.rank.init(), receiver_context = receiver.rank.init();
  const std::uint64_t sender_third = sender.rank.init(), receiver_third = receiver.rank.init();
  Listener listener = receiver.rank.listen(receiver.device, {.context = receiver_context});
  auto [send, receive] = finish(sender.rank.connect(sender.device, listener.handle(), {.context = sender_context}),
                                receiver.rank.accept(listener));
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  sender.rank.finalize(sender.rank.contexts().front());
  deliver(sender, send, receiver, receive, {.size = 1001, .seed = random()()});
  receiver.rank.finalize(receiver.rank.contexts().front());
  deliver(sender, send, receiver, receive, {.size = 70000, .seed = random()()});
  sender.rank.finalize(sender_third);
  receiver.rank.finalize(receiver_third);
  deliver(sender, send, receiver, receive, {.size = 1002, .seed = random()()});
}

RULE(IN_10, Should, ApiRange::from(11),  //
     .title = "finalize returns with comms and listeners still open",
     .text = "finalize returns and does not crash while listeners, half-open connections and comms are still open.",
     .source =
         "transport/net.cc: sendProxyFree and recvProxyFree skip unconnected comms; proxy.cc stops at the first error",
     .why =
         "When communicators are destroyed after an error, NCCL skips comms that were never connected and may finalize "
         "with comms open. A finalize that waits hangs the abort.",
     .check =
         "Calls finalize at both endpoints with a connection, a listener and a half-open connect still open. Any "
         "result is accepted, a hang or crash is not.",
     .blind = "The state of those comms afterwards: NCCL does not use them.",
     .faults = {{"NVIDIA/nccl#1620", "resources stayed behind, since plugins older than v11 have no finalize"}}) {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection open = connect(sender, receiver);
  deliver(sender, receiver, open, {.size = 1000, .seed = random()()});
  Listener listener = receiver.rank.listen(receiver.device);
  Connect half_open = sender.rank.connect(sender.device, listener.handle());
  half_open.poll();
  const Outcome of_sender = sender.rank.try_finalize(sender.rank.contexts().front());
  const Outcome of_receiver = receiver.rank.try_finalize(receiver.rank.contexts().front());
  observe(fmt::format("finalize returned {} at the sender and {} at the receiver", result_name(of_sender.code),
                      result_name(of_receiver.code)));
}

RULE(IN_13, Must, ApiRange::all().libraries_only(),  //
     .title = "log formats match their arguments",
     .text =
         "From the first init on, each call of the logger passes arguments that match its format string. [S]: a run "
         "without errors logs no warning.",
     .source = "debug.cc: ncclDebugLog runs vsnprintf; ER-07",
     .why =
         "NCCL's logger passes the arguments to vsnprintf. A wrong argument crashes only those users who turn logging "
         "on.",
     .check =
         "The rank's logger checks each format string against its arguments by reading them as NCCL would, during a "
         "complete connection. A warning in a run without errors is itself a warning.",
     .blind = "Log calls on paths that a run without errors does not take.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection connection = connect(sender, receiver);
  deliver(sender, receiver, connection, {.size = 70000, .seed = random()()});
  connection.send.close();
  connection.receive.close();
  for (Rank rank : {sender.rank, receiver.rank}) {
    for (const LogLine& line : rank.log()) {
      should(line.level != 2, fmt::format("rank {}: logged a warning in a run without errors, expected none: {}",
                                          rank.name(), line.text));
    }
  }
}

RULE(IN_02, Should, ApiRange::from(11),  //
     .title = "init stores a context",
     .text =
         "An init that succeeds writes *ctx. Any value is allowed, including NULL. Before the call NCCL's variable "
         "holds NULL.",
     .source = "plugin/net.cc: ncclNetPluginInit passes the address of comm->netContext",
     .why =
         "NCCL passes the stored context to listen, connect and finalize. Without it these calls get a context that is "
         "not the plugin's.",
     .check = "Calls init with a pattern in *ctx, which must be gone after the call.") {
  const PointerOutcome outcome =
      near_rank({.state = RankState::kLoaded, .fresh = true}).try_init({.context = Preset::kPoison});
  require_success(outcome);
  expect(!outcome.untouched, fmt::format("{} returned Success and did not write *ctx", outcome.call));
}

RULE(IN_09, Must, ApiRange::from(11),  //
     .title = "finalize may run on another thread than init",
     .text = "Each finalize belongs to one init and may run on any thread.",
     .source = "plugin/net.cc: ncclNetFinalize runs on the thread that destroys the communicator",
     .why =
         "Applications destroy communicators on threads of their choice. A finalize that relies on the thread of init "
         "fails or hangs.",
     .check = "Calls init on one thread, connects, and calls finalize on another. The first context still works.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  const std::uint64_t context = sender.rank.on("creator").init();
  Listener listener = receiver.rank.listen(receiver.device);
  auto [send, receive] = finish(sender.rank.connect(sender.device, listener.handle(), {.context = context}),
                                receiver.rank.accept(listener));
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  send.close();
  sender.rank.on("destroyer").finalize(context);
  Connection other = connect(sender, receiver);
  deliver(sender, receiver, other, {.size = 1000, .seed = random()()});
}

RULE(IN_11, Must, ApiRange::from(11),  //
     .title = "one context serves many connections",
     .text =
         "Communicators that share resources use the context of their parent and do not call init, so the number of "
         "listeners and comms does not depend on the number of inits.",
     .source = "plugin/net.cc: ncclNetInitFromParent",
     .why = "If a context supports only a few connections, ncclCommSplit with shared resources fails.",
     .check = "Opens 32 listeners and 24 connections with one context, and sends a message over the last one.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  std::vector<Listener> listeners;
  for (int i = 0; i < 32; ++i) listeners.push_back(receiver.rank.listen(receiver.device));
  std::optional<Connection> last;
  for (int i = 0; i < 24; ++i) last = connect(sender, receiver);
  deliver(sender, receiver, *last, {.size = 1000, .seed = random()()});
}

RULE(IN_12, Must, ApiRange::from(10),  //
     .title = "init accepts any configuration and keeps no pointer",
     .text =
         "config points to an object that is gone after the call. A trafficClass of -1 means undefined. [S]: a value "
         "that the network does not know does not make init fail.",
     .source = "plugin/net.cc: ncclNetPluginInit passes the address of a local variable; plugin/net/net_v10.cc",
     .why =
         "A plugin that keeps the pointer reads invalid memory in connect. If init refuses a value, NCCL falls back to "
         "another network.",
     .check = "Calls init with four traffic classes, overwrites the configuration, connects and sends a message.") {
  for (const int traffic_class : {-1, 0, 106, 255}) {
    const auto use = [&] {
      const auto start = [&](Rank rank) {
        rank.init({.context = Preset::kNull, .traffic_class = traffic_class});
        rank.devices();
      };
      start(near_rank({.state = RankState::kLoaded}));
      start(far_rank({.state = RankState::kLoaded}));
      const Endpoint sender = near_endpoint(), receiver = far_endpoint();
      const Connection connection = connect(sender, receiver);
      deliver(sender, receiver, connection, {.size = 1000, .seed = random()()});
    };
    if (traffic_class == -1)
      on_new_ranks(use);
    else
      probe(use);
  }
}

RULE(IN_14, Should, ApiRange::from(10),  //
     .title = "the profiler callback may be NULL",
     .text = "init with a profiler callback of NULL works, and later operations have no phandle.",
     .source = "plugin/net.cc: NCCL passes a callback from v10 on; inits of CollNet and GIN have none",
     .why =
         "A plugin that has one init for several interfaces and does not check the callback calls address 0 at its "
         "first event.",
     .check = "Calls init with NULL and sends a message whose phandles are NULL.") {
  Rank near = near_rank({.state = RankState::kLoaded, .fresh = true});
  Rank far = far_rank({.state = RankState::kLoaded, .fresh = true});
  for (Rank rank : {near, far}) {
    rank.init({.context = Preset::kNull, .profiler = 0});
    rank.devices();
  }
  const Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection connection = connect(sender, receiver);
  constexpr std::size_t kSize = 1000;
  const Registered from = allocate(sender.rank, connection.send, kSize);
  const Registered to = allocate(receiver.rank, connection.receive, kSize);
  const std::uint64_t seed = random()();
  near.fill(from.memory, seed);
  Receive receive(connection.receive, to.buffer(), 0, {.phandle = 0});
  Send send(connection.send, from.buffer(), 0, {.phandle = 0});
  finish({&receive, &send});
  require_content(far, to.memory, seed, "a message without a profiler");
}

}  // namespace plugfest::conformance
