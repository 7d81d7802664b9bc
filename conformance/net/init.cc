// IN: init, finalize and contexts.
#include <fmt/format.h>

#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connection;
using control::Device;
using control::End;
using control::Listener;
using control::Rank;

RULE(IN_01, Must, ApiRange::from(11),  //
     .title = "each communicator gets a context that works",
     .text =
         "init is called once per communicator, several times in a process; each context is independent, or shared "
         "and counted.",
     .source = "plugin/net.cc: ncclNetPluginInit") {
  Rank rank = this->rank({.state = control::RankState::kLoaded});
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
  End sender = near(), receiver = far();
  // The last communicator goes and a new one comes, while the library stays mapped.
  for (Rank rank : {sender.rank, receiver.rank}) {
    rank.finalize(rank.contexts().front());
    rank.init();
  }
  Connection connection = control::connect(sender, receiver);
  deliver(sender, receiver, connection, {.size = 1000, .seed = random()()});
}

}  // namespace plugfest::conformance
