// CN rules: arguments, outputs and threads of connect and accept.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/peer.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(CN_08, Must, ApiRange::all(),  //
     .title = "a stored comm is final",
     .text =
         "As long as connect or accept is not finished, its output is NULL when the call returns. NCCL sets it to NULL "
         "only before the first call. Any other value is the comm.",
     .source = "transport/net.cc: sendProxyConnect, recvProxyConnect",
     .why = "NCCL takes the value for the comm and stops calling connect.",
     .check =
         "Stops the receiver, calls connect four times, and uses the first non-NULL value as the comm. Does the same "
         "with accept before a connect.",
     .alone = true) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  Connect connect = sender.rank.connect(sender.device, listener.handle(), {.comm = Preset::kNull});
  Accept accept = receiver.rank.accept(listener, {.comm = Preset::kNull});
  receiver.rank.freeze();
  for (int i = 0; i < 4 && !connect.done(); ++i) connect.poll();
  receiver.rank.thaw();
  auto [send, receive] = finish(connect, accept);
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});

  Listener other = receiver.rank.listen(receiver.device);
  Accept early = receiver.rank.accept(other, {.comm = Preset::kNull});
  for (int i = 0; i < 4 && !early.done(); ++i) early.poll();
  Connect late = sender.rank.connect(sender.device, other.handle());
  finish(late, early);
}

RULE(CN_12, Must, ApiRange::all(),  //
     .title = "a failed connect or accept stores no comm",
     .text = "When connect returns an error, its output is NULL. [S] for accept.",
     .source = "transport/net.cc: sendProxyConnect closes a stored comm, and sendProxyFree closes it again",
     .why =
         "If a failed connect stores a value, NCCL takes the value for a comm and closes it twice; that of a failed "
         "accept is closed once.",
     .check =
         "Kills the peer of a connect and of an accept, continues to call both, and looks at the output of an error.",
     .blind = "Errors that a killed peer does not cause.") {
  const auto check = [&](auto attempt, std::string_view call) {
    control::StallLimit limit = stall_limit();
    for (int i = 0; i < 500 && !attempt.done() && !limit.expired(); ++i) {
      const PointerOutcome outcome = attempt.try_poll();
      if (outcome.ok()) continue;
      const std::string stored =
          fmt::format("{} returned {} and stored a comm, expected NULL", outcome.call, result_name(outcome.code));
      if (call == "accept")
        should(outcome.value == 0, stored);
      else
        expect(outcome.value == 0, stored);
      observe(fmt::format("{} returned {} after its peer was killed", call, result_name(outcome.code)));
      return;
    }
    observe(fmt::format("{} returned no error after its peer was killed", call));
  };
  for (const bool kill_listener : {true, false}) {
    on_new_ranks([&] {
      Endpoint sender = near_endpoint(retrying_briefly()), receiver = far_endpoint(retrying_briefly());
      Listener listener = receiver.rank.listen(receiver.device);
      Connect connect = sender.rank.connect(sender.device, listener.handle());
      Accept accept = receiver.rank.accept(listener);
      connect.poll();
      if (kill_listener) {
        receiver.rank.kill();
        check(connect, "connect");
      } else {
        accept.poll();
        sender.rank.kill();
        check(accept, "accept");
      }
    });
  }
}

RULE(CN_13, Should, ApiRange::all(),  //
     .title = "close accepts NULL", .text = "closeSend, closeRecv and closeListen with NULL do not crash.",
     .source = "transport/net.cc: sendProxyFree closes the comm of a connect that failed",
     .why =
         "After a failed connect NCCL closes a comm that is NULL. A crash ends the application instead of the "
         "communicator.",
     .check = "Calls each close function with NULL in a new process.") {
  const auto report = [&](const Outcome& outcome) {
    observe(fmt::format("{} returned {}", outcome.call, result_name(outcome.code)));
  };
  probe([&] { report(near_rank().try_close_send(0)); });
  probe([&] { report(near_rank().try_close_recv(0)); });
  probe([&] { report(near_rank().try_close_listen(0)); });
}

RULE_ON(
    MessageRule, CN_14, Must, ApiRange::from(7),  //
    .title = "the device handle of connect and accept may be NULL",
    .text =
        "For host devices the devHandle argument of connect and accept points to NULL. It may also be NULL: [S] "
        "from v9 on, and if the run has a GPU and the device does not support its memory.",
    .source =
        "transport/net.cc: ncclNetGetDeviceHandle; plugin/net.cc: ncclGpuGdrSupport, which passes NULL if the driver "
        "is older than CUDA 11.3",
    .why =
        "NCCL passes NULL, or the address of a NULL pointer, for devices that are not driven by the GPU. A plugin "
        "that uses the pointer without a check crashes.",
    .check = "Connects and accepts with each of the two and delivers a message.",
    .blind = "Devices of type UNPACK. For their accepts every rule allocates the device handle, as NCCL does.") {
  for (const Endpoint& endpoint : {near_endpoint(), far_endpoint()}) {
    const int type = Rank(endpoint.rank).properties(endpoint.device).net_device_type;
    if (type != 0) not_applicable(fmt::format("netDeviceType is {}, not 0 (HOST)", type));
  }
  const auto use = [&](bool pointer) {
    Endpoint sender = near_endpoint(), receiver = far_endpoint();
    Listener listener = receiver.rank.listen(receiver.device);
    auto [send, receive] = finish(sender.rank.connect(sender.device, listener.handle(), {.device_handle = pointer}),
                                  receiver.rank.accept(listener, {.device_handle = pointer}));
    listener.close();
    deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  };
  use(true);
  require_or_probe(api() <= 8 && may_transfer_gpu_memory(), [&] { use(false); });
}

RULE(CN_25, Must, ApiRange::from(11),  //
     .title = "listen and connect may use different contexts",
     .text = "A process may have several contexts. It may listen with one of them and connect with another.",
     .source = "GIN of NCCL 2.28: ncclGinConnectOnce listens with one context and connects with another",
     .why =
         "GIN listens and connects with different contexts. If a plugin does not permit that, GIN cannot connect its "
         "ranks.",
     .check = "Listens with the first context of a process, connects with its second one, and sends messages.") {
  Endpoint left = near_endpoint({.fresh = true}), right = far_endpoint({.fresh = true});
  Listener at_left = left.rank.listen(left.device), at_right = right.rank.listen(right.device);
  const auto connect = [&](Endpoint& sender, Endpoint& receiver, Listener& listener) {
    auto [send, receive] =
        finish(sender.rank.connect(sender.device, listener.handle(), {.context = sender.rank.init()}),
               receiver.rank.accept(listener));
    deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  };
  connect(left, right, at_right);
  connect(right, left, at_left);
}

RULE(CN_26, Must, ApiRange::from(11),  //
     .title = "setNetAttr is a hint",
     .text =
         "NCCL calls setNetAttr before each call of connect and accept and before transfers, with any values, "
         "including -1 for undefined. It ignores the result. Connections work for all values.",
     .source = "transport/net.cc: setNetAttrs, setXferNetAttrs",
     .why =
         "If the plugin relies on the values, connections fail for algorithms and sizes of communicators that it does "
         "not expect.",
     .check = "Calls setNetAttr with undefined, zero, equal and random values before the calls of connections.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  if (!sender.rank.has_function("setNetAttr")) not_applicable("the plugin has no setNetAttr");
  const auto random_value = [&] { return static_cast<std::int32_t>(random_between(0, 4096)); };
  const std::vector<NetAttributes> all = {
      {},
      {.send = {0, 0, 0, 0}, .receive = {0, 0, 0, 0}, .op = 0, .algo = 0, .proto = 0},
      {.send = {8, 8, 2, 2}, .receive = {8, 8, 2, 2}, .op = 1, .algo = 2, .proto = 4},
      {.send = {random_value(), random_value(), random_value(), random_value()},
       .receive = {random_value(), random_value(), random_value(), random_value()}}};
  int refused = 0;  // NCCL ignores the result
  for (const NetAttributes& attributes : all) {
    const auto set = [&](Rank rank, const char* thread) {
      refused += rank.on(thread).try_set_net_attributes(rank.contexts().front(), attributes).ok() ? 0 : 1;
    };
    Listener listener = receiver.rank.listen(receiver.device);
    Connect connect = sender.rank.connect(sender.device, listener.handle());
    Accept accept = receiver.rank.accept(listener);
    for (StallLimit limit = stall_limit(); !connect.done() || !accept.done();) {
      expect(!limit.expired(),
             fmt::format("rank {}: connect and accept did not finish after setNetAttr", sender.rank.name()));
      set(sender.rank, "svc");
      if (!connect.done()) connect.poll();
      set(receiver.rank, "svc");
      if (!accept.done()) accept.poll();
    }
    set(sender.rank, "prog");
    deliver(sender, connect.comm(), receiver, accept.comm(), {.size = 70000, .seed = random()()});
  }
  if (refused != 0) observe(fmt::format("setNetAttr returned an error in {} calls", refused));
}

RULE(CN_28, Should, ApiRange::all(),  //
     .title = "a comm belongs to no thread",
     .text = "One thread connects, another one uses the comm, and a third one closes it.",
     .source = "proxy.cc: two threads, of which one connects and closes, and the other one transfers",
     .why = "NCCL uses only two threads for a comm, but another program or a later NCCL may use more.",
     .check = "Makes the calls of listen, connect and accept, of transfers, and of close on three threads.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.on("listens").listen(receiver.device);
  Connect connect = sender.rank.on("connects").connect(sender.device, listener.handle());
  Accept accept = receiver.rank.on("accepts").accept(listener);
  finish(connect, accept);
  listener.on("closes").close();
  SendComm send = connect.comm().on("uses");
  RecvComm receive = accept.comm().on("uses");
  deliver(sender, send, receiver, receive, {.size = 70000, .seed = random()()});
  send.on("closes").close();
  receive.on("closes").close();
}

RULE(CN_29, Info, ApiRange::all(),  //
     .title = "the number of calls that a connection needs",
     .text = "connect and accept may need any number of calls. A plugin may make progress in these calls only.",
     .source = "proxy.cc: ncclProxyService calls without a pause while a connection is pending",
     .why = "A connection that needs many calls delays the start of a job.",
     .check = "Calls connect and accept in turn until both are done, and counts the calls of each.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  Connect connect = sender.rank.connect(sender.device, listener.handle());
  Accept accept = receiver.rank.accept(listener);
  int connects = 0, accepts = 0;
  for (StallLimit limit = stall_limit(); !connect.done() || !accept.done();) {
    expect(!limit.expired(), [&] {
      return fmt::format("the connection was not made in {} s, with {} calls of connect and {} of accept",
                         limit.seconds(), connects, accepts);
    });
    if (!connect.done() && ++connects != 0) connect.poll();
    if (!accept.done() && ++accepts != 0) accept.poll();
  }
  observe(fmt::format("connect returned a comm in call {}, accept in call {}, called in turn", connects, accepts));
  deliver(sender, connect.comm(), receiver, accept.comm(), {.size = 1000, .seed = random()()});
}

RULE(CN_30, Must, ApiRange::all(),  //
     .title = "connect and accept do not return ncclInProgress",
     .text =
         "An unfinished connect or accept returns Success with NULL. ncclInProgress (7) is not a result of a plugin.",
     .source = "debug.h: NCCLCHECK takes 7 for no error; sendProxyConnect closes a stored comm and continues to use it",
     .why = "NCCL does not treat 7 as an error: it closes the stored comm and continues to use it.",
     .check = "Connects and looks at each result code.") {
  check_codes([&] { connect(near_endpoint(), far_endpoint()); });
}

RULE(
    CN_31, Must, ApiRange::all(),  //
    .title = "both endpoints report equal maxRecvs",
    .text =
        "maxRecvs is the same at both endpoints of a connection. [S] if both are greater than 1: NCCL then shares "
        "comms "
        "at both endpoints.",
    .source =
        "transport/net.cc: sendProxySetup and recvProxySetup each decide by their own maxRecvs whether comms are "
        "shared",
    .why =
        "If one endpoint has maxRecvs 8 and the other 1, one sends all channels over one comm while the other waits on "
        "several.",
    .check = "Compares maxRecvs of the two devices.",
    .blind = "Hosts with other hardware, settings or versions than these two.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const int here = sender.rank.properties(sender.device).max_recvs;
  const int there = receiver.rank.properties(receiver.device).max_recvs;
  const std::string message = fmt::format("maxRecvs is {} at rank {} and {} at rank {}, expected equal values", here,
                                          sender.rank.name(), there, receiver.rank.name());
  expect((here > 1) == (there > 1), message);
  should(here == there, message);
}

}  // namespace plugfest::conformance
