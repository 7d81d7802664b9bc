// IN: init, finalize and contexts.
#include <fmt/format.h>

#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connection;
using control::Device;
using control::Endpoint;
using control::Listener;
using control::Rank;

RULE(IN_01, Must, ApiRange::from(11),  //
     .title = "each communicator gets a context that works",
     .text =
         "init is called once per communicator, several times in a process; each context is independent, or shared "
         "and counted.",
     .source = "plugin/net.cc: ncclNetPluginInit") {
  Rank rank = near_rank({.state = control::RankState::kLoaded});
  std::vector<std::uint64_t> contexts;
  for (int i = 0; i < 3; ++i) contexts.push_back(rank.init());
  const int devices = rank.devices();
  if (devices == 0) skip(fmt::format("rank {} has no device", rank.name()));

  auto use = [&](std::uint64_t context) {
    expect(rank.devices() == devices, fmt::format("rank {}: devices changed after an init or finalize", rank.name()));
    rank.properties(Device{0});
    Listener listener = rank.listen(Device{0}, {.context = context});
    listener.close();
  };
  for (const std::uint64_t context : contexts) use(context);
  // Not in the order of init: NCCL destroys communicators as the application does.
  rank.finalize(contexts[1]);
  use(contexts[0]);
  use(contexts[2]);
  rank.finalize(contexts[2]);
  use(contexts[0]);
  rank.finalize(contexts[0]);
}

RULE(IN_03, Must, ApiRange::up_to(10),  //
     .title = "a second init without an unload succeeds",
     .text = "init called again in the same process, without an unload in between, succeeds, and the plugin works.",
     .source = "plugin/net/net_v10.cc: the shim's counter falls to 0 while the library can stay; aws-ofi-nccl #905") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  // The last communicator goes and a new one comes, while the library stays mapped.
  for (Rank rank : {sender.rank, receiver.rank}) {
    rank.finalize(rank.contexts().front());
    rank.init();
  }
  Connection connection = control::connect(sender, receiver);
  deliver(sender, receiver, connection, {.size = 1000, .seed = random()()});
}

namespace {

/// A rank whose environment shows it no device of any kind that a fabric knows.
control::RankWish without_devices() {
  return {.state = control::RankState::kLoaded,
          .fresh = true,
          .environment = {{"PLUGFEST_ROCE_INTERFACES", "none"}, {"NCCL_SOCKET_IFNAME", "none"}}};
}

}  // namespace

RULE(IN_05, Should, ApiRange::all(),  //
     .title = "no hardware is no disaster",
     .text = "Without devices init fails with an error, or devices says 0 with Success; nothing crashes.",
     .source = "ext-net README: devices; plugin/net.cc: ncclNetPluginInit") {
  Rank rank = near_rank(without_devices());
  const control::PointerOutcome init = rank.try_init();
  if (!init.ok()) {
    observe(fmt::format("init returned {}", control::result_name(init.code)));
    return;
  }
  const int devices = rank.devices();
  observe(fmt::format("init succeeded, devices said {}", devices));
}

RULE(IN_06, Must, ApiRange::from(11),  //
     .title = "finalize after a failed init is safe",
     .text = "finalize may follow an init that failed, also with a context that is NULL.",
     .source = "plugin/net.cc: ncclNetPluginInit of NCCL 2.28 and 2.29, the way out of a failure") {
  Rank rank = near_rank(without_devices());
  const control::PointerOutcome init = rank.try_init({.context = control::Preset::kNull});
  rank.try_finalize(init.value);

  Rank other = far_rank({.state = control::RankState::kLoaded, .fresh = true});
  other.try_finalize(0);
}

RULE(IN_08, Must, ApiRange::from(11),  //
     .title = "finalizing one context leaves the others alone",
     .text = "Communicators end independently: comms of another context work on.",
     .source = "plugin/net.cc: ncclNetFinalize per communicator") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  const std::uint64_t sender_context = sender.rank.init(), receiver_context = receiver.rank.init();
  Listener listener = receiver.rank.listen(receiver.device, {.context = receiver_context});
  auto [send, receive] =
      control::finish(sender.rank.connect(sender.device, listener.handle(), {.context = sender_context}),
                      receiver.rank.accept(listener));
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  sender.rank.finalize(sender.rank.contexts().front());
  deliver(sender, send, receiver, receive, {.size = 1001, .seed = random()()});
  receiver.rank.finalize(receiver.rank.contexts().front());
  deliver(sender, send, receiver, receive, {.size = 70000, .seed = random()()});
}

RULE(IN_10, Should, ApiRange::from(11),  //
     .title = "finalize copes with what was left open",
     .text = "finalize returns, and does not crash, with listeners, half-open connections and open comms left.",
     .source = "transport/net.cc: sendProxyFree and recvProxyFree skip unconnected ones; proxy.cc stops at an error") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection open = control::connect(sender, receiver);
  deliver(sender, receiver, open, {.size = 1000, .seed = random()()});
  Listener listener = receiver.rank.listen(receiver.device);
  control::Connect half_open = sender.rank.connect(sender.device, listener.handle());
  half_open.poll();
  const control::Outcome sender_end = sender.rank.try_finalize(sender.rank.contexts().front());
  const control::Outcome receiver_end = receiver.rank.try_finalize(receiver.rank.contexts().front());
  observe(fmt::format("finalize returned {} and {}", control::result_name(sender_end.code),
                      control::result_name(receiver_end.code)));
}

RULE(IN_13, Must, ApiRange::all().libraries_only(),  //
     .title = "the logger gets what it can print",
     .text =
         "Formats and arguments of log lines match, from the first init on. [S]: nothing is a warning when all goes "
         "well.",
     .source = "debug.cc: ncclDebugLog runs vsnprintf; ER-07") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection connection = control::connect(sender, receiver);
  deliver(sender, receiver, connection, {.size = 70000, .seed = random()()});
  connection.send.close();
  connection.receive.close();
  for (Rank rank : {sender.rank, receiver.rank}) {
    for (const control::LogLine& line : rank.log()) {
      should(line.level != 2, fmt::format("rank {}: a warning although all went well: {}", rank.name(), line.text));
    }
  }
}

}  // namespace plugfest::conformance
