// CL rules: closing of comms, at usual and unusual times, and what the peer observes.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/peer.h"
#include "conformance/net/script/traffic.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(CL_01, Must, ApiRange::all(),  //
     .title = "close needs no help from the peer",
     .text =
         "closeSend, closeRecv and closeListen return Success regardless of what the peer does. The two sides may "
         "close in any order.",
     .source = "transport/net.cc: sendProxyFree, recvProxyFree; aws-ofi-nccl #868, #953",
     .why =
         "The two sides of a connection close when their own communicator is destroyed, minutes apart or at once. A "
         "close that waits for the peer hangs one side or both.",
     .check = "Closes all comms of one side while the other process is stopped, then the other side's, in two orders.",
     .blind = "Both sides that close in the same instant from several threads.",
     .faults = {{"aws/aws-ofi-nccl#875", "closeSend waited for a comm that no accept had returned"},
                {"aws/aws-ofi-nccl#907", "after an abort of some ranks, close waited for a message that never came"},
                {"Mellanox/nccl-rdma-sharp-plugins#121", "both endpoints closed at once and deadlocked"}},
     .alone = true) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  for (const bool sender_first : {true, false}) {
    Connection out = connect(left, right);
    Connection back = connect(right, left);
    Listener listener = left.rank.listen(left.device);
    deliver(left, right, out, {.size = 1000, .seed = random()()});
    deliver(right, left, back, {.size = 1000, .seed = random()()});

    right.rank.freeze();  // one rank closes while the other is stopped
    if (sender_first) out.send.close();
    back.receive.close();
    if (!sender_first) out.send.close();
    listener.close();
    right.rank.thaw();

    // The other rank closes comms whose peers are already closed.
    if (sender_first) back.send.close();
    out.receive.close();
    if (!sender_first) back.send.close();
  }
}

RULE(CL_02, Must, ApiRange::all(),  //
     .title = "a completed send arrives although the sender exits",
     .text =
         "The data of a completed send reaches the receiver, even if the sender closes, finalizes and exits "
         "immediately.",
     .source = "transport/net.cc: the sender's communicator can be destroyed while the receiver still polls",
     .why = "If the close discards data, the last messages of a communicator are lost, and the receiver waits forever.",
     .check =
         "Sends until the send is done, then deregisters, closes, finalizes and kills the sender, and requires the "
         "message to arrive.",
     .blind = "A sender whose host loses its network.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint();
  Connection connection = connect_and_deliver(sender, receiver, random()());
  constexpr std::size_t kSize = 100000;
  Registered from = allocate(sender.rank, connection.send, kSize);
  Registered to = allocate(receiver.rank, connection.receive, kSize);
  const std::uint64_t seed = random()();
  sender.rank.fill(from.memory, seed);

  // The receiver makes calls until the send is done, since a rendezvous may need them, and none afterwards.
  Traffic traffic(stall_limit());
  traffic.receive(connection.receive, to.buffer());
  const Traffic::Ticket send = traffic.send(connection.send, from.buffer());
  traffic.until_done(send);
  from.registration.dereg();
  connection.send.close();
  sender.rank.finalize(sender.rank.contexts().front());
  sender.rank.kill();

  traffic.finish();
  require_content(receiver.rank, to.memory, seed, "a message whose sender has exited");
}

RULE(CL_04, Must, ApiRange::all(),  //
     .title = "a receive does not complete when its sender has closed",
     .text =
         "When the peer aborts, isend, irecv and test return errors or stay pending. A receive whose data never came "
         "is not reported as done.",
     .source = "transport/net.cc: the other rank polls on until its own abort",
     .why = "If the receive completes, the other ranks continue with data that was never sent.",
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

RULE(CL_06, Must, ApiRange::all(),  //
     .title = "closing one comm does not affect others",
     .text = "When one comm is closed, comms of other communicators on the same device still work.",
     .source = "proxy.cc: ncclProxyService; transport/net.cc: connections are freed one by one",
     .why =
         "NCCL frees the connections of a communicator while those of others on the same device still transfer. If a "
         "close affects the others, running operations fail.",
     .check =
         "Closes one of three connections in the middle of the traffic on the other two, which have threads of their "
         "own, first its sender and then its receiver.",
     .blind = "Comms of the same communicator, which NCCL does not use any more when it closes one.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kMessages = 4, kSize = 20000;
  constexpr std::size_t kKept[] = {0, 2};
  std::vector<RegisteredConnection> streams;
  streams.push_back(connect_another_communicator(sender, receiver, kMessages * kSize));
  streams.push_back(connect_registered(sender, receiver, 1, kMessages * kSize).front());
  streams.push_back(connect_another_communicator(sender, receiver, kMessages * kSize));
  const std::uint64_t seed = random()();
  Traffic traffic(stall_limit());
  for (std::size_t m = 0; m < kMessages; ++m) {
    for (const std::size_t s : kKept) {
      sender.rank.fill(streams[s].from.slice(m * kSize, kSize), seed + s * kMessages + m);
      traffic.receive(streams[s].receive, streams[s].to.buffer(m * kSize, kSize));
    }
  }
  for (int i = 0; i < 4; ++i) traffic.step();
  streams[1].from.registration.dereg();
  streams[1].send.close();
  for (std::size_t m = 0; m < kMessages; ++m)
    for (const std::size_t s : kKept) traffic.send(streams[s].send, streams[s].from.buffer(m * kSize, kSize));
  for (int i = 0; i < 4; ++i) traffic.step();
  streams[1].to.registration.dereg();
  streams[1].receive.close();
  traffic.finish();
  for (std::size_t m = 0; m < kMessages; ++m) {
    for (const std::size_t s : kKept) {
      require_content(receiver.rank, streams[s].to.slice(m * kSize, kSize), seed + s * kMessages + m,
                      fmt::format("message {} of connection {}", m, s));
    }
  }
}

RULE(CL_07, Should, ApiRange::all(),  //
     .title = "any thread may close",
     .text = "close succeeds on another thread than the one that connected, registered or transferred.",
     .source = "proxy.cc: the service thread closes connections that it made and whose transfers ran on another thread",
     .why = "NCCL closes on the thread that connected, but another program or a later NCCL may close on any thread.",
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
        "NCCL deregisters the buffers of a connection, frees them, and then closes the comms, while those of other "
        "communicators are in use.",
    .source = "transport/net.cc: sendProxyFree, recvProxyFree",
    .why = "If close accesses the memory, the application crashes when a communicator ends.",
    .check =
        "Sends a message, deregisters, unmaps the memory and closes while another connection, which has threads of its "
        "own, transfers.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kSize = 50000;
  const RegisteredConnection other = connect_another_communicator(sender, receiver, kSize);
  const Connection busy = {other.send, other.receive};
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
     .why = "If the last close waits for the peer, ncclCommAbort hangs.",
     .check = "Stops the peer, closes all comms of the process, and calls finalize.", .alone = true) {
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
         "continue, even if the peer answers later, and finalize succeeds.",
     .source = "proxy.cc: an abort during ncclCommInitRank; proxyFree acts only on finished connections",
     .why = "If an abandoned connect is not reclaimed, the next communicator of the process fails after a failed init.",
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

RULE(CL_13, Must, ApiRange::all(),  //
     .title = "both endpoints may close at the same time",
     .text = "closeSend at one endpoint and closeRecv at the other run at the same time and return.",
     .source = "transport/net.cc: all ranks destroy a communicator at the same time",
     .why =
         "All ranks destroy a communicator at the same time. If both closes wait for each other, ncclCommDestroy "
         "deadlocks.",
     .check = "Starts both closes before it waits for either, for connections in both directions, ten times.",
     .faults = {{"Mellanox/nccl-rdma-sharp-plugins#121", "both endpoints waited for each other in close"}}) {
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

}  // namespace plugfest::conformance
