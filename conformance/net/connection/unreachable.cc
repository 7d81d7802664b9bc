// CN rules: peers and networks that do not answer as expected while ranks connect.
#include <fmt/format.h>

#include "conformance/net/peer/lost_peer.h"
#include "conformance/net/script/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connect;
using control::Connection;
using control::Endpoint;
using control::Listener;
using control::PointerOutcome;

RULE(CN_21, Should, ApiRange::all(),  //
     .title = "a connect to a listener that is gone ends in an error",
     .text =
         "When the listener was closed, or its process has died, connect returns an error within bounded time. No call "
         "waits. A connect that the listener's kernel had accepted before may succeed.",
     .source = "ncclCommInitRank has no timeout of its own", .why = "The init of the other ranks never ends.",
     .check =
         "Closes the listener, or kills its process, before the first connect, and calls connect until it is over.") {
  // NVIDIA's transports try again 34 times, with growing pauses, unless these variables say otherwise.
  const control::RankOptions quick = {
      .fresh = true, .environment = {{"NCCL_SOCKET_RETRY_CNT", "2"}, {"NCCL_SOCKET_RETRY_SLEEP_MSEC", "1"}}};
  for (const bool kill : {false, true}) {
    on_new_ranks([&] {
      Endpoint sender = near_endpoint(quick), receiver = far_endpoint(quick);
      Listener listener = receiver.rank.listen(receiver.device);
      Connect connect = sender.rank.connect(sender.device, listener.handle());
      if (kill) {
        receiver.rank.kill();
      } else {
        listener.close();
      }
      const std::string_view event = kill ? "the listener's process was killed" : "the listener was closed";
      for (control::StallLimit limit = stall_limit(); !connect.done();) {
        const PointerOutcome outcome = connect.try_poll();
        if (!outcome.ok()) {
          observe(fmt::format("connect returned {} after {}", control::result_name(outcome.code), event));
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

RULE(CN_33, Must, ApiRange::all(),  //
     .title = "hosts with unequal MTUs can connect",
     .text = "Two ranks connect and exchange large messages although the MTUs of their interfaces differ.",
     .source = "jumbo frames that not every host or switch port has",
     .why = "Small messages pass and the first large one hangs.",
     .check = "Sets a smaller MTU at one host, connects in both directions and sends messages of 100 kB.",
     .blind = "Switches that drop packets which both hosts can send.",
     .faults = {{"NVIDIA/nccl#2135", "transfers hung between hosts with unequal MTUs"}}) {
  const auto small_mtu = shrink_far_mtu(1200);
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection out = control::connect(sender, receiver), back = control::connect(receiver, sender);
  for (const std::size_t size : {std::size_t{100}, std::size_t{100'000}}) {
    deliver(sender, receiver, out, {.size = size, .seed = random()()});
    deliver(receiver, sender, back, {.size = size, .seed = random()()});
  }
}

}  // namespace plugfest::conformance
