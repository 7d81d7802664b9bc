// IN rules: unload, exit and fork of a process with open comms.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "conformance/net/script/message.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Listener;
using control::Rank;
using control::RankState;

RULE(
    IN_04, Must, ApiRange::up_to(10).libraries_only(),  //
    .title = "the library can be unloaded with comms open",
    .text =
        "Versions up to v10 have no finalize: NCCL unloads the library when the last communicator is destroyed, also "
        "when "
        "comms were left open.",
    .source = "plugin/net/net_v10.cc: ncclNet_finalize only counts",
    .why = "A thread or a handler of the plugin runs code that is no longer mapped.",
    .check = "Unloads the library with a listener, a half-open connection and a connection open, and waits a moment.") {
  Endpoint endpoint = near_endpoint({.fresh = true});
  Connection open = control::connect(endpoint, endpoint);
  deliver(endpoint, endpoint, open, {.size = 1000, .seed = random()()});
  Listener listener = endpoint.rank.listen(endpoint.device);
  control::Connect half_open = endpoint.rank.connect(endpoint.device, listener.handle());
  half_open.poll();
  endpoint.rank.unload();
  for (int i = 0; i < 400; ++i) endpoint.rank.process();  // a crash of a thread ends the rule
}

RULE(IN_16, Should, ApiRange::all(),  //
     .title = "a process exits with comms open",
     .text =
         "exit without closes and without finalize neither hangs nor crashes. A program may also close its comms in an "
         "exit "
         "handler that runs after those of the plugin.",
     .source = "frameworks that never destroy their communicators, or do so in a destructor of a global object",
     .why = "The job ends with a crash report or does not end.",
     .check =
         "Sends a message and calls exit(0) in one rank. In a second process, also closes the comms in an exit handler "
         "that "
         "was registered before the library was loaded.",
     .faults = {{"aws/aws-ofi-nccl#730", "an exit handler freed what a later close used"}}) {
  for (const bool close_comms : {false, true}) {
    on_new_ranks([&] {
      Endpoint leaver = near_endpoint(), other = far_endpoint();
      Connection out = control::connect(leaver, other), back = control::connect(other, leaver);
      deliver(leaver, other, out, {.size = 1000, .seed = random()()});
      deliver(other, leaver, back, {.size = 70000, .seed = random()()});
      leaver.rank.exit(close_comms);
    });
  }
}

RULE(IN_17, Should, ApiRange::all(),  //
     .title = "a process may fork and run other programs",
     .text =
         "After a fork whose child exits, and after a program has been started, comms still work. Descriptors of the "
         "plugin "
         "are close-on-exec.",
     .source = "Python's subprocess in data loaders",
     .why = "The child holds connections open, or ends those of its parent.",
     .check = "Forks and starts /bin/true between messages. Lists the descriptors that a started program inherits.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection connection = control::connect(sender, receiver);
  for (Rank rank : {sender.rank, receiver.rank}) {
    for (const auto child : {Rank::Child::kExits, Rank::Child::kRunsAnotherProgram}) {
      const int status = rank.fork(child);
      expect(status == 0, fmt::format("rank {}: a child process ended with status {:#x}", rank.name(), status));
      deliver(sender, receiver, connection, {.size = 70000, .seed = random()()});
    }
    const std::vector<std::string> inherited = inherited_descriptors(rank.pid());
    should(inherited.empty(), [&] {
      return fmt::format("rank {}: programs inherit {} of the plugin, expected close-on-exec: {}", rank.name(),
                         counted(inherited.size(), "descriptor"), fmt::join(inherited, ", "));
    });
  }
}

RULE(IN_18, Should, ApiRange::all().libraries_only(),  //
     .title = "a child process may use a library that its parent loaded",
     .text = "When the parent has only loaded the library, init and devices succeed in a forked child.",
     .source = "launchers that import a framework and then fork",
     .why = "State of a constructor that belongs to the parent's process makes init fail in every child.",
     .check = "Loads the library, forks, and calls init and devices in the child.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const int status = rank.fork(Rank::Child::kCallsInit);
  expect(status == 0,
         fmt::format("rank {}: init and devices in a forked child: {}", rank.name(),
                     status == 1 << 8 ? std::string("one of them failed") : fmt::format("wait status {:#x}", status)));
}

}  // namespace plugfest::conformance
