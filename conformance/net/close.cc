// CL rules: closing of comms and listeners. CN rules: listeners and their handles.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/peer.h"
#include "conformance/net/script/process_state.h"
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
                {"Mellanox/nccl-rdma-sharp-plugins#121", "both ends closed at once and deadlocked"}}) {
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
     .why = "Otherwise, the last messages of a communicator are lost, and the receiver waits forever.",
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

RULE(CL_03, Must, ApiRange::all(),  //
     .title = "close succeeds with operations outstanding",
     .text =
         "On an abort with receives and sends outstanding, NCCL deregisters the memory and closes the comms. Nothing "
         "hangs or crashes, and the memory is not accessed.",
     .source = "transport/net.cc: the abort path; aws-ofi-nccl #868, #953",
     .why =
         "On an abort NCCL closes comms with operations outstanding and frees their memory. A close that hangs or "
         "fails prevents a restart, and a later access corrupts memory.",
     .check =
         "Posts 8 receives and sends, deregisters, forbids access to the memory, closes all comms, and connects again.",
     .blind = "Accesses of a hardware NIC, which page protection does not stop.",
     .faults = {{"aws/aws-ofi-nccl#868",
                 "closing a comm with requests in flight returned an error, and NCCL leaked its memory"},
                {"aws/aws-ofi-nccl#953", "closing during an abort failed"}}) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  Connection out = connect(left, right), back = connect(right, left);
  constexpr std::size_t kOperations = 8, kSize = 40000;
  Registered to_left = allocate(left.rank, back.receive, kOperations * kSize);
  Registered from_left = allocate(left.rank, out.send, kOperations * kSize);
  for (std::size_t i = 0; i < kOperations; ++i) {
    Receive receive(back.receive, to_left.buffer(i * kSize, kSize));
    Send send(out.send, from_left.buffer(i * kSize, kSize));
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

  Connection afterwards = connect(left, right);
  deliver(left, right, afterwards, {.size = 1000, .seed = random()()});
}

RULE(CL_06, Must, ApiRange::all(),  //
     .title = "closing one comm does not affect others",
     .text = "When one comm is closed, other comms of the same device and listener still work.",
     .source = "transport/net.cc: connections are freed one by one",
     .why =
         "NCCL frees connections one by one while others of the same device still transfer. If a close affects the "
         "others, running operations fail.",
     .check =
         "Closes one of three connections in the middle of the traffic on the other two, first its sender and then its "
         "receiver.",
     .blind = "Comms of the same listener that are still half open.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kStreams = 3, kMessages = 4, kSize = 20000;
  constexpr std::size_t kKept[] = {0, 2};
  std::vector<RegisteredConnection> streams = connect_registered(sender, receiver, kStreams, kMessages * kSize);
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

RULE(CN_03, Should, ApiRange::all(),  //
     .title = "listen does not rely on a zeroed handle",
     .text = "listen initialises every byte of the handle that is used later, including the state of a connect.",
     .source = "transport/net.cc happens to pass zeroed handles; no document promises it",
     .why =
         "NCCL passes zeroed handles today, but no document promises it. In a handle with other content connect starts "
         "from an undefined state, and fails or crashes.",
     .check = "Fills the handle with 0xff before listen, connects with a copy, and delivers a message.",
     .blind = "Bytes that happen to be right when they are 0xff.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device, {.handle_fill = 0xff});
  auto [send, receive] = finish(sender.rank.connect(sender.device, listener.handle()), receiver.rank.accept(listener));
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

RULE(CN_14, Must, ApiRange::from(7),  //
     .title = "connect and accept take a NULL device handle",
     .text = "For host devices the devHandle argument of connect and accept is NULL or points to NULL.",
     .source = "transport/net.cc: ncclNetGetDeviceHandle",
     .why =
         "NCCL passes NULL, or the address of a NULL pointer, for devices that are not driven by the GPU. A plugin "
         "that uses the pointer without a check crashes.",
     .check = "Connects and accepts with each of the two and delivers a message.",
     .blind = "Devices of type UNPACK. For their accepts every rule allocates the device handle, as NCCL does.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  for (const Endpoint& endpoint : {sender, receiver}) {
    const int type = Rank(endpoint.rank).properties(endpoint.device).net_device_type;
    if (type != 0) not_applicable(fmt::format("netDeviceType is {}, not 0 (HOST)", type));
  }
  for (const bool pointer : {false, true}) {
    Listener listener = receiver.rank.listen(receiver.device);
    auto [send, receive] = finish(sender.rank.connect(sender.device, listener.handle(), {.device_handle = pointer}),
                                  receiver.rank.accept(listener, {.device_handle = pointer}));
    listener.close();
    deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  }
}

RULE(CN_16, Must, ApiRange::all(),  //
     .title = "listen and closeListen without accept leak nothing",
     .text = "NCCL may close a listener without an accept. This leaves no file descriptor, thread or memory behind.",
     .source = "transport/net.cc: of the ranks that share a comm, one accepts and the others close their listeners",
     .why =
         "Of the ranks that share a comm, only one accepts; the others close their listeners unused. What is left "
         "accumulates with each communicator.",
     .check = "Calls listen and closeListen 1500 times and compares descriptors, threads and memory.",
     .blind = "Leaks smaller than 5 KiB for each cycle.",
     .faults = {{"aws/aws-ofi-nccl#598", "listen leaked a string on every call"},
                {"NVIDIA/nccl#550", "descriptors ran out while connecting"}}) {
  Endpoint endpoint = near_endpoint();
  auto cycle = [&] { endpoint.rank.listen(endpoint.device).close(); };
  for (int i = 0; i < 50; ++i) cycle();
  const ProcessFacts before = endpoint.rank.process();
  constexpr int kCycles = 1500;
  for (int i = 0; i < kCycles; ++i) cycle();
  // Each limit allows growth that happens once, but no growth with each cycle.
  const std::uint64_t most_descriptors = static_cast<std::uint64_t>(before.file_descriptors) + 16;
  const std::uint64_t most_threads = static_cast<std::uint64_t>(before.threads) + 16;
  const control::ProcessFacts after = settled(endpoint.rank, stall_limit(), [&](const control::ProcessFacts& now) {
    return static_cast<std::uint64_t>(now.file_descriptors) <= most_descriptors &&
           static_cast<std::uint64_t>(now.threads) <= most_threads;
  });
  auto expect_at_most = [&](std::uint64_t limit, std::uint64_t now, std::string_view what) {
    expect(now <= limit, fmt::format("rank {}: {} {} after {} cycles of listen and closeListen, expected at most {}",
                                     endpoint.rank.name(), now, what, kCycles, limit));
  };
  expect_at_most(most_descriptors, static_cast<std::uint64_t>(after.file_descriptors), "file descriptors");
  expect_at_most(most_threads, static_cast<std::uint64_t>(after.threads), "threads");
  expect_at_most(before.resident_bytes / 1024 + 8192, after.resident_bytes / 1024, "KiB of resident memory");
}

RULE(CN_20, Must, ApiRange::all(),  //
     .title = "a message sent before accept is delivered",
     .text = "One side may finish connecting long before the other. A send posted right after connect is delivered.",
     .source = "transport/net.cc: no barrier between the two proxies",
     .why =
         "The two proxies are not synchronised: a sender can be done with connect and post long before the receiver "
         "accepts.",
     .check =
         "Connects without calling accept, if connect finishes without it, posts a send, then accepts and receives.",
     .blind = "More messages than one ahead of the accept.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  Connect connect = sender.rank.connect(sender.device, listener.handle());
  Accept accept = receiver.rank.accept(listener);
  // accept is called only if connect cannot finish without it.
  for (int i = 0; i < 64 && !connect.done(); ++i) connect.poll();
  if (!connect.done()) finish(connect, accept);
  const bool ahead = !accept.done();
  observe(ahead ? "connect was done before accept" : "accept was done before connect");

  constexpr std::size_t kSize = 5000;
  Registered from = allocate(sender.rank, connect.comm(), kSize);
  const std::uint64_t seed = random()();
  sender.rank.fill(from.memory, seed);
  Send send(connect.comm(), from.buffer());
  for (int i = 0; i < 64 && !send.done(); ++i) send.turn();
  Accepting accepting(accept);
  finish({&accepting});
  listener.close();
  Registered to = allocate(receiver.rank, accepting.comm(), kSize);
  Receive receive(accepting.comm(), to.buffer());
  finish({&receive, &send});
  require_content(receiver.rank, to.memory, seed, "a message sent before the accept");
}

RULE(CN_22, Should, ApiRange::all(),  //
     .title = "untrusted connections do not disturb accept",
     .text = "TCP connections to the listener that send garbage or nothing do not make accept fail or wait.",
     .source = "NVIDIA/nccl #1808, #914",
     .why =
         "Ports of a plugin are open to port scanners and to old peers that reuse an address. A wrong connection must "
         "not stop the job.",
     .check =
         "Opens TCP connections to all sockets on which the receiver listens, sends random bytes on some and nothing "
         "on the others, then connects normally.",
     .blind = "Plugins that do not listen on TCP, and untrusted packets of other protocols.",
     .faults = {{"NVIDIA/nccl#1808", "a foreign TCP request stopped NCCL's proxy thread"},
                {"NVIDIA/nccl#914", "a thread waited in recv for a connection that sent nothing"},
                {"NVIDIA/nccl#1612", "a connection that closed early failed the bootstrap"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  std::vector<std::byte> garbage(64);
  for (std::byte& byte : garbage) byte = static_cast<std::byte>(random()());
  const UntrustedConnections untrusted(receiver.rank.pid(), garbage);
  if (untrusted.count() == 0) observe("the receiver listens on no TCP socket");
  Accept accept = receiver.rank.accept(listener);
  // A plugin without connections may return a comm at once.
  for (int i = 0; i < 16 && !accept.done(); ++i) accept.poll();
  Connect connect = sender.rank.connect(sender.device, listener.handle());
  auto [send, receive] = finish(connect, accept);
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

}  // namespace plugfest::conformance
