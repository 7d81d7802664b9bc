// CL rules: closing of comms and listeners.
#include <fmt/format.h>

#include "conformance/net/script/message.h"
#include "conformance/net/script/traffic.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Listener;

RULE(CL_01, Must, ApiRange::all(),  //
     .title = "close needs no help from the peer",
     .text =
         "closeSend, closeRecv and closeListen return Success whatever the peer does. The two sides may close in any "
         "order.",
     .source = "transport/net.cc: sendProxyFree, recvProxyFree; aws-ofi-nccl #868, #953",
     .why = "The two sides of a connection close when their own communicator is destroyed, minutes apart or at once.",
     .check = "Closes all comms of one side while the other process is stopped, then the other side's, in two orders.",
     .blind = "Both sides that close in the same instant from several threads.",
     .faults = {{"aws/aws-ofi-nccl#875", "closeSend waited for a comm that no accept had returned"},
                {"aws/aws-ofi-nccl#907", "after an abort of some ranks, close waited for a message that never came"},
                {"Mellanox/nccl-rdma-sharp-plugins#121", "both ends closed at once and deadlocked"}}) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  for (const bool sender_first : {true, false}) {
    Connection out = control::connect(left, right);
    Connection back = control::connect(right, left);
    Listener listener = left.rank.listen(left.device);
    deliver(left, right, out, {.size = 1000, .seed = random()()});
    deliver(right, left, back, {.size = 1000, .seed = random()()});

    right.rank.freeze();  // one side closes while the other is stopped
    if (sender_first) out.send.close();
    back.receive.close();
    if (!sender_first) out.send.close();
    listener.close();
    right.rank.thaw();

    // The other side closes comms whose peers are closed already.
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
     .why = "The sender's communicator can be destroyed while the receiver still polls.",
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

  // The receiver makes calls until the send is done, since a rendezvous may need them, and none after that.
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

RULE(CL_03, Must, ApiRange::all(),  //
     .title = "close succeeds with operations outstanding",
     .text =
         "On an abort with receives and sends outstanding, NCCL deregisters the memory and closes the comms. Nothing "
         "hangs or crashes, and the memory is not accessed.",
     .source = "transport/net.cc: the abort path; aws-ofi-nccl #868, #953",
     .why = "An abort closes comms with operations outstanding, and NCCL frees their memory.",
     .check =
         "Posts 8 receives and sends, deregisters, forbids access to the memory, closes all comms, and connects again.",
     .blind = "Accesses of a hardware NIC, which page protection does not stop.",
     .faults = {{"aws/aws-ofi-nccl#868",
                 "closing a comm with requests in flight returned an error, and NCCL leaked its memory"},
                {"aws/aws-ofi-nccl#953", "closing during an abort failed"}}) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  Connection out = control::connect(left, right), back = control::connect(right, left);
  constexpr std::size_t kOperations = 8, kSize = 40000;
  Registered to_left = allocate(left.rank, back.receive, kOperations * kSize);
  Registered from_left = allocate(left.rank, out.send, kOperations * kSize);
  for (std::size_t i = 0; i < kOperations; ++i) {
    control::Receive receive(back.receive, to_left.buffer(i * kSize, kSize));
    control::Send send(out.send, from_left.buffer(i * kSize, kSize));
    receive.post();
    for (int attempt = 0; attempt < 4 && !send.post(); ++attempt) {
    }
  }
  to_left.registration.dereg();
  from_left.registration.dereg();
  to_left.memory.forbid();
  from_left.memory.forbid();
  back.receive.close();
  out.send.close();
  out.receive.close();
  back.send.close();

  Connection afterwards = control::connect(left, right);
  deliver(left, right, afterwards, {.size = 1000, .seed = random()()});
}

RULE(CL_06, Must, ApiRange::all(),  //
     .title = "closing one comm does not affect others",
     .text = "When one comm is closed, other comms of the same device and listener still work.",
     .source = "transport/net.cc: connections are freed one by one",
     .why = "NCCL frees connections one by one while others of the same device still transfer.",
     .check =
         "Closes one of three connections in the middle of the traffic on the other two, first its sender and then its "
         "receiver.",
     .blind = "Comms of the same listener that are still half open.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kStreams = 3, kMessages = 4, kSize = 20000;
  constexpr std::size_t kKept[] = {0, 2};
  std::vector<Stream> streams = connect_streams(sender, receiver, kStreams, kMessages * kSize);
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
  for (std::size_t m = 0; m < kMessages; ++m) {
    for (const std::size_t s : kKept) traffic.send(streams[s].send, streams[s].from.buffer(m * kSize, kSize));
  }
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

}  // namespace plugfest::conformance
