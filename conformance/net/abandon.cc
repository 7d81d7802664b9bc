// CL rules: closes at unusual times, aborts, and what the peer observes. CN-21: a listener that no longer exists.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/peer.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(CL_04, Must, ApiRange::all(),  //
     .title = "a receive does not complete when its sender has closed",
     .text =
         "When the peer aborts, isend, irecv and test return errors or stay pending. A receive whose data never came "
         "is not reported as done.",
     .source = "transport/net.cc: the other rank polls on until its own abort",
     .why = "Otherwise, the other ranks continue with data that was never sent.",
     .check = "Posts two receives, closes the peer's comms without a send, and tests the receives 200 times.") {
  Endpoint left = near_endpoint(), right = far_endpoint();
  Connection out = connect_and_deliver(left, right, random()()), back = connect(right, left);
  constexpr std::size_t kSize = 20000;
  Registered to = allocate(right.rank, out.receive, 2 * kSize);
  Registered from = allocate(right.rank, back.send, kSize);
  Trial first = Trial::receive(out.receive, {{to.buffer(0, kSize), 0}});
  Trial second = Trial::receive(out.receive, {{to.buffer(kSize, kSize), 0}});
  Trial send = Trial::send(back.send, from.buffer());
  drive({&first, &second, &send}, 8);
  out.send.close();
  back.receive.close();
  drive({&first, &second, &send}, 200);
  for (const Trial* receive : {&first, &second}) {
    expect(!receive->done(), [&] {
      return fmt::format("rank {}: a receive whose sender closed without a send {}, expected an error or no completion",
                         right.rank.name(), receive->describe());
    });
  }
}

RULE(CL_07, Must, ApiRange::all(),  //
     .title = "any thread may close",
     .text = "close succeeds on another thread than the one that connected, registered or transferred.",
     .source = "proxy.cc: the service thread frees connections whose transfers ran on the progress thread",
     .why = "NCCL transfers on one thread and closes on another. If that fails, communicators cannot be destroyed.",
     .check = "Transfers on two threads in turn, deregisters on a third one, and closes on a fourth one.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = connect(sender, receiver);
  constexpr std::size_t kSize = 9000;
  Registered from = allocate(sender.rank, connection.send, kSize);
  Registered to = allocate(receiver.rank, connection.receive, kSize);
  for (const char* thread : {"prog", "other"}) {
    transfer(sender.rank, connection.send.on(thread), from.buffer(), receiver.rank, connection.receive.on(thread),
             to.buffer(), random()(), "a message");
  }
  from.registration.on("deregisters").dereg();
  to.registration.on("deregisters").dereg();
  connection.send.on("closes").close();
  connection.receive.on("closes").close();
}

RULE(
    CL_08, Must, ApiRange::all(),  //
    .title = "close does not need memory that was deregistered",
    .text =
        "NCCL deregisters the buffers of a connection, frees them, and then closes the comms, while others are in use.",
    .source = "transport/net.cc: sendProxyFree, recvProxyFree",
    .why = "Otherwise, the application crashes when a communicator ends.",
    .check = "Sends a message, deregisters, unmaps the memory and closes while another connection transfers.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection busy = connect(sender, receiver);
  constexpr std::size_t kSize = 50000;
  std::vector<RegisteredConnection> streams = connect_registered(sender, receiver, 3, kSize);
  for (RegisteredConnection& stream : streams) {
    transfer(sender.rank, stream.send, stream.from.buffer(), receiver.rank, stream.receive, stream.to.buffer(),
             random()(), "a message");
  }
  std::size_t next = 0;
  during_streams(busy, random(), static_cast<int>(streams.size()), [&] {
    if (next == streams.size()) return;
    RegisteredConnection& stream = streams[next++];
    stream.from.release();
    stream.to.release();
    stream.send.close();
    stream.receive.close();
  });
}

RULE(CL_09, Should, ApiRange::all(),  //
     .title = "the last close of a device does not wait for the peer",
     .text = "Closing the last comm of a device, and finalize, may defer work but do not wait for the peer.",
     .source = "transport/net.cc; plugins that share an endpoint between comms",
     .why = "Otherwise, ncclCommAbort hangs.",
     .check = "Stops the peer, closes all comms of the process, and calls finalize.") {
  Endpoint left = near_endpoint({.fresh = true}), right = far_endpoint({.fresh = true});
  Connection out = connect_and_deliver(left, right, random()()), back = connect_and_deliver(right, left, random()());
  right.rank.freeze();
  out.send.close();
  back.receive.close();
  left.rank.finalize(left.rank.contexts().front());
  right.rank.thaw();
}

RULE(CL_10, Should, ApiRange::all(),  //
     .title = "an abandoned connect is reclaimed",
     .text =
         "NCCL gives up connections that are not finished: it never calls connect or accept again. Other connections "
         "go on, also when the peer answers later, and finalize succeeds.",
     .source = "proxy.cc: an abort during ncclCommInitRank; proxyFree acts only on finished connections",
     .why = "A failed init leaves a process in which the next communicator fails.",
     .check =
         "Calls connect once and never again, accepts at the peer, sends messages over another connection, and "
         "finalizes.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection other = connect(sender, receiver);
  Listener listener = receiver.rank.listen(receiver.device);
  Connect abandoned = sender.rank.connect(sender.device, listener.handle());
  abandoned.poll();
  Accept accept = receiver.rank.accept(listener);
  for (int i = 0; i < 32 && !accept.done() && accept.try_poll().ok(); ++i)
    deliver(sender, receiver, other, {.size = 1000, .seed = random()()});
  sender.rank.free_attempts();
  deliver(sender, receiver, other, {.size = 1000, .seed = random()()});
  listener.close();
  other.send.close();
  sender.rank.finalize(sender.rank.contexts().front());
}

RULE_ON(LostPeer, CL_11, Must, ApiRange::all(),  //
        .title = "a failed comm can be closed",
        .text = "After an error of an operation, deregMr and close of the comm succeed.",
        .source = "proxy.cc: after an error the progress thread ends; the service thread frees the connections",
        .why = "Otherwise, ncclCommAbort fails, and the application cannot go on without the lost rank.",
        .check = "Kills the receiver, sends until an error, then deregisters and closes.",
        .blind = "Other connections of the process; ER-05 checks them.") {
  connect_ranks();
  PointerOutcome send = connection_->send.try_isend(from_->buffer(0, kSize));
  receiver_->rank.kill();
  std::vector<Request> requests;
  if (send.ok() && send.value != 0) requests.push_back(connection_->send.request(send.value));
  send_until_error("the receiver was killed", requests);
  require_success(from_->registration.try_dereg());
  require_success(connection_->send.try_close());
}

RULE(CL_12, Must, ApiRange::all(),  //
     .title = "an abort does not wait for a peer that does not abort",
     .text = "With sends and receives outstanding, deregMr and close return although the peer does nothing.",
     .source = "transport/net.cc: the abort path of one rank",
     .why = "Otherwise, ncclCommAbort hangs in one rank until the others abort, too.",
     .check = "Leaves sends and receives outstanding, stops the peer, deregisters and closes at one side.",
     .faults = {{"aws/aws-ofi-nccl#907", "close hung when only one side aborted"}}) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  Connection out = connect_and_deliver(left, right, random()()), back = connect_and_deliver(right, left, random()());
  constexpr std::size_t kOperations = 4, kSize = 1 << 20;
  Registered from = allocate(left.rank, out.send, kOperations * kSize);
  Registered to = allocate(left.rank, back.receive, kOperations * kSize);
  Registered at_peer = allocate(right.rank, out.receive, kSize);
  Trial received = Trial::receive(out.receive, {{at_peer.buffer(), 0}});
  received.turn();
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < kOperations; ++i) {
    trials.push_back(Trial::receive(back.receive, {{to.buffer(i * kSize, kSize), 0}}));
    trials.push_back(Trial::send(out.send, from.buffer(i * kSize, kSize)));
  }
  for (Trial& trial : trials) drive({&trial}, 2);
  right.rank.freeze();
  from.registration.dereg();
  to.registration.dereg();
  out.send.close();
  back.receive.close();
  right.rank.thaw();
  Connection after = connect(left, right);
  deliver(left, right, after, {.size = 1000, .seed = random()()});
}

RULE(CL_13, Must, ApiRange::all(),  //
     .title = "both ends may close at the same time",
     .text = "closeSend at one end and closeRecv at the other run at the same time and return.",
     .source = "transport/net.cc: all ranks destroy a communicator at the same time",
     .why = "Otherwise, ncclCommDestroy deadlocks.",
     .check = "Starts both closes before it waits for either, for connections in both directions, ten times.",
     .faults = {{"Mellanox/nccl-rdma-sharp-plugins#121", "both ends waited for each other in close"}}) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  for (int round = 0; round < 10; ++round) {
    Connection connection = round % 2 == 0 ? connect(left, right) : connect(right, left);
    if (round < 2) {
      Endpoint &from = round == 0 ? left : right, &to = round == 0 ? right : left;
      deliver(from, to, connection, {.size = 1000, .seed = random()()});
    }
    Started<Outcome> send = connection.send.start_close(), receive = connection.receive.start_close();
    require_success(send.get());
    require_success(receive.get());
  }
}

RULE(CN_21, Should, ApiRange::all(),  //
     .title = "connect to a listener that no longer exists fails",
     .text =
         "When the listener was closed, or its process has died, connect returns an error within bounded time, and no "
         "call waits. It may succeed if the kernel of the listener's host had accepted the connection before.",
     .source = "ncclCommInitRank has no timeout of its own",
     .why = "Otherwise, the init of the other ranks never ends.",
     .check =
         "Closes the listener, or kills its process, before the first connect, and calls connect until it succeeds or "
         "fails.") {
  // NVIDIA's transports retry 34 times, with growing pauses, unless these variables change that.
  const RankOptions quick = {.fresh = true,
                             .environment = {{"NCCL_SOCKET_RETRY_CNT", "2"}, {"NCCL_SOCKET_RETRY_SLEEP_MSEC", "1"}}};
  for (const bool kill : {false, true}) {
    on_new_ranks([&] {
      Endpoint sender = near_endpoint(quick), receiver = far_endpoint(quick);
      Listener listener = receiver.rank.listen(receiver.device);
      Connect connect = sender.rank.connect(sender.device, listener.handle());
      if (kill)
        receiver.rank.kill();
      else
        listener.close();
      const std::string_view event = kill ? "the listener's process was killed" : "the listener was closed";
      for (StallLimit limit = stall_limit(); !connect.done();) {
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

RULE(CN_33, Should, ApiRange::all(),  //
     .title = "hosts with unequal MTUs can connect",
     .text = "Two ranks connect and exchange large messages although the MTUs of their interfaces differ.",
     .source = "jumbo frames that not every host or switch port has",
     .why = "Small messages pass and the first large one hangs.",
     .check = "Sets a smaller MTU at one host, connects in both directions and sends messages of 100 kB.",
     .blind = "Switches that drop packets which both hosts can send.",
     .faults = {{"NVIDIA/nccl#2135", "transfers hung between hosts with unequal MTUs"}}) {
  const auto small_mtu = shrink_far_mtu(1200);
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection out = connect(sender, receiver), back = connect(receiver, sender);
  for (const std::size_t size : {std::size_t{100}, std::size_t{100'000}}) {
    deliver(sender, receiver, out, {.size = size, .seed = random()()});
    deliver(receiver, sender, back, {.size = size, .seed = random()()});
  }
}

}  // namespace plugfest::conformance
