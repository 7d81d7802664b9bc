// CN rules: connect and accept.
#include <fmt/format.h>

#include <numeric>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/traffic.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

RULE(CN_05, Must, ApiRange::all(),  //
     .title = "connect keeps no pointer to the handle",
     .text =
         "connect gets the same writable copy of the handle in every call and may keep its state there. Once it has "
         "returned a comm, the plugin neither reads nor writes that memory.",
     .source = "transport/net.cc: sendProxyConnect passes the handle inside the request of the proxy service",
     .why = "NCCL frees the request as soon as connect has returned a comm. Then other code uses the memory.",
     .check =
         "Connects, makes the handle's memory inaccessible, sends messages, registers and closes. An access crashes "
         "the process.",
     .blind = "Accesses that happen only after errors.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection connection = connect(sender, receiver);
  sender.rank.forbid_attempts();
  for (const std::size_t size : {std::size_t{1000}, std::size_t{0}, std::size_t{65536}})
    deliver(sender, receiver, connection, {.size = size, .seed = random()()});
  SendComm(connection.send).close();
  RecvComm(connection.receive).close();
}

RULE(CN_06, Must, ApiRange::all(),  //
     .title = "connect never waits for the peer",
     .text = "A connect that cannot finish yet returns Success with *sendComm NULL; NCCL calls it again.",
     .source = "nccl_net.h; ncclProxyService: one loop serves every connection of a GPU (NVIDIA/nccl #616)",
     .why =
         "NCCL's service thread drives all connections of a GPU in one loop. Two ranks that connect to each other "
         "before either accepts wait forever if connect waits.",
     .check =
         "Stops the listening process after 0, 1, 2, 3, 6 and 120 calls of accept, calls connect up to 32 times, and "
         "requires each call to return. Then the connection must work.",
     .blind = "Waits of less than the time limit of a call.",
     .faults = {{"NVIDIA/nccl#616", "a connect that waits for the peer deadlocked NCCL"},
                {"aws/aws-ofi-nccl#85", "connect to its own device waited for an accept that came later"},
                {"google/nccl-fastsocket", "connect blocks in the TCP handshake"}},
     .alone = true) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  for (const int steps : {0, 1, 2, 3, 6, 120}) {
    Listener listener = receiver.rank.listen(receiver.device);
    Connect connect = sender.rank.connect(sender.device, listener.handle());
    Accept accept = receiver.rank.accept(listener);
    for (int i = 0; i < steps && !connect.done() && !accept.done(); ++i) {
      connect.poll();
      accept.poll();
    }
    if (!connect.done()) {
      receiver.rank.freeze();  // from here on the peer cannot answer
      for (int attempt = 0; attempt < 32 && !connect.done(); ++attempt)
        connect.poll();  // A call that hangs ends the rule. Done is allowed: the kernel's backlog may be enough.
      receiver.rank.thaw();
    }
    auto [send, receive] = finish(connect, accept);
    deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  }
}

RULE(CN_07, Must, ApiRange::all(),  //
     .title = "accept never waits for the peer",
     .text =
         "An accept that cannot finish yet returns Success with *recvComm NULL; NCCL calls it again. A plugin without "
         "connections may return a comm before any connect.",
     .source = "nccl_net.h; transport/net.cc: recvProxyConnect runs in the loop that serves every connection",
     .why = "The same loop calls accept. An accept that waits for a connect stops the connects of the same process.",
     .check =
         "Calls accept 32 times before any connect. Then stops the connecting process after 1, 2, 3, 6 and 120 calls "
         "of connect, and calls accept 32 times.",
     .blind = "Waits of less than the time limit of a call.",
     .faults = {{"google/nccl-fastsocket", "accept blocks in accept(2)"},
                {"aws/aws-ofi-nccl#353", "accept returned a comm while connect still returned none"}},
     .alone = true, .starts_first = true) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  for (const int steps : {1, 2, 3, 6, 120}) {
    Listener listener = receiver.rank.listen(receiver.device);
    Accept accept = receiver.rank.accept(listener);
    for (int attempt = 0; attempt < 32 && !accept.done(); ++attempt) accept.poll();
    if (accept.done() && steps == 1) observe("accept returned a comm before any connect");

    // A peer that stops in the middle of its connect must not block accept either.
    Connect connect = sender.rank.connect(sender.device, listener.handle());
    for (int i = 0; i < steps && !connect.done() && !accept.done(); ++i) {
      connect.poll();
      if (i + 1 < steps) accept.poll();
    }
    if (!accept.done()) {
      sender.rank.freeze();
      for (int attempt = 0; attempt < 32 && !accept.done(); ++attempt) accept.poll();
      sender.rank.thaw();
    }
    auto [send, receive] = finish(connect, accept);
    deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
  }
}

namespace {

// One connection of CN-09 and its two handshakes.
struct Pair {
  Endpoint sender;
  Endpoint receiver;
  Listener listener;
  Connecting connecting;
  Accepting accepting;
  bool connected = false;
};

// `count` connections in alternating directions, on which no call has been made.
std::vector<Pair> pairs_both_ways(const Endpoint& left, const Endpoint& right, int count) {
  std::vector<Pair> pairs;
  for (int i = 0; i < count; ++i) {
    Endpoint sender = i % 2 == 0 ? left : right, receiver = i % 2 == 0 ? right : left;
    Listener listener = receiver.rank.listen(receiver.device);
    Connecting connecting(sender.rank.connect(sender.device, listener.handle()));
    Accepting accepting(receiver.rank.accept(listener));
    pairs.push_back({sender, receiver, listener, connecting, accepting});
  }
  return pairs;
}

// Connects to `handles` and accepts on `listeners` in one loop on one thread, in this order.
ConnectMany loop_of(const Endpoint& endpoint, const std::vector<Handle>& handles,
                    const std::vector<Listener>& listeners, std::vector<std::uint32_t> order) {
  return {.device = endpoint.device, .handles = handles, .listeners = listeners, .order = std::move(order)};
}

std::vector<Handle> handles_of(const std::vector<Listener>& listeners) {
  std::vector<Handle> handles;
  for (const Listener& listener : listeners) handles.push_back(listener.handle());
  return handles;
}

}  // namespace

RULE(CN_09, Must, ApiRange::all(),  //
     .title = "connections driven by one thread finish in any order",
     .text =
         "If one thread drives many connections in turn, each of them finishes, whatever the order of the calls: all "
         "connects before any accept, all accepts first, or mixed.",
     .source = "proxy.cc: ncclProxyService; NVIDIA/nccl #616",
     .why =
         "NCCL's ranks connect to many peers in an order that no plugin knows. A plugin that needs an order deadlocks "
         "in some topologies.",
     .check =
         "Connects 16 pairs in both directions, all connects before the accepts, last listener first; then 48 "
         "connections in random order on one thread of each process.",
     .blind = "More connections than the plugin's tables hold, and more than two processes.",
     .faults = {{"NVIDIA/nccl#616", "a connect that waits for the peer deadlocked NCCL"},
                {"aws/aws-ofi-nccl#489",
                 "connect returned before the answer of the peer, for which closeSend then had to wait"},
                {"aws/aws-ofi-nccl#310", "the numbers of comms ran out"}}) {
  Endpoint left = near_endpoint(), right = far_endpoint();

  // All connects of both ranks come before any accept: a connect that waits for its accept hangs. The accepts follow,
  // last listener first: a plugin that serves connections in the order of listening stalls.
  std::vector<Pair> pairs = pairs_both_ways(left, right, 16);
  for (int round = 0; round < 4; ++round)
    for (Pair& pair : pairs) pair.connected = pair.connected || pair.connecting.turn();
  std::vector<Step*> steps;
  for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) steps.push_back(&pair->accepting);
  for (Pair& pair : pairs)
    if (!pair.connected) steps.push_back(&pair.connecting);
  finish(steps);
  for (Pair& pair : pairs) {
    deliver(pair.sender, pair.connecting.comm(), pair.receiver, pair.accepting.comm(),
            {.size = 64, .seed = random()()});
    pair.listener.close();
  }

  // Both ranks at once, each with 24 connects and 24 accepts on one thread, in random order.
  constexpr std::uint32_t kEachWay = 24;
  std::vector<Listener> at_left, at_right;
  for (std::uint32_t i = 0; i < kEachWay; ++i) {
    at_left.push_back(left.rank.listen(left.device));
    at_right.push_back(right.rank.listen(right.device));
  }
  auto shuffled = [this] {
    std::vector<std::uint32_t> order(2 * kEachWay);
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random_between(0, i)]);
    return order;
  };
  auto left_loop = start_connecting(left.rank, loop_of(left, handles_of(at_right), at_left, shuffled()));
  auto right_loop = start_connecting(right.rank, loop_of(right, handles_of(at_left), at_right, shuffled()));
  const ConnectManyOutcome left_outcome = left_loop.get(), right_outcome = right_loop.get();
  require_clean(left_outcome);
  require_clean(right_outcome);
}

RULE(CN_10, Should, ApiRange::all(),  //
     .title = "a device connects to itself",
     .text =
         "connect and accept in one process, on one device and one thread, give a working connection, even for empty "
         "messages.",
     .source = "gin/gin_host.cc connects each rank to itself; NVIDIA/nccl #636",
     .why = "Programs that use several GPUs from one process, and GIN, connect a device to itself.",
     .check = "Connects, accepts, and sends messages of 0, 1000 and 65536 bytes within one process.",
     .blind = "Two devices of one process that connect to each other.",
     .faults = {{"NVIDIA/nccl#636", "a rank could not send zero bytes to itself"},
                {"aws/aws-ofi-nccl#85", "a connection to its own device deadlocked with rendezvous"}}) {
  Endpoint endpoint = near_endpoint();
  Connection connection = connect(endpoint, endpoint);
  for (const std::size_t size : {std::size_t{1000}, std::size_t{0}, std::size_t{65536}})
    deliver(endpoint, endpoint, connection, {.size = size, .seed = random()()});
}

RULE(CN_20, Should, ApiRange::all(),  //
     .title = "a message sent before accept is delivered",
     .text = "One side may finish connecting long before the other. A send posted right after connect is delivered.",
     .source =
         "transport.cc: ncclTransportP2pSetup, in which ranks wait for each other after they have connected; NCCL "
         "2.13 has no such wait, 2.19 has",
     .why =
         "In old releases of NCCL the two proxies are not synchronized: a sender can be done with connect and post "
         "long before the receiver accepts.",
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

RULE(CN_23, Must, ApiRange::all(),  //
     .title = "connections between the same devices are independent",
     .text = "A message arrives only on its own connection. Messages of one connection arrive in order.",
     .source = "transport/net.cc: one connection per channel and peer",
     .why =
         "NCCL opens one connection for each channel between the same two devices and expects each to carry only its "
         "own messages.",
     .check = "Opens two connections between the same devices and alternates messages on them in opposite orders.",
     .blind = "Connections of different processes.",
     .faults = {{"aws/aws-ofi-nccl#367", "numbers of comms ran out at 4096"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kStreams = 2, kMessages = 8, kSize = 512;
  const std::vector<RegisteredConnection> streams = connect_registered(sender, receiver, kStreams, kMessages * kSize);
  const std::uint64_t seed = random()();
  auto seed_of = [&](std::size_t stream, std::size_t message) { return seed + stream * kMessages + message; };

  // Sends and receives alternate between the streams, in opposite orders.
  Traffic traffic(stall_limit());
  for (std::size_t m = 0; m < kMessages; ++m) {
    for (std::size_t s = kStreams; s-- > 0;)
      traffic.receive(streams[s].receive, streams[s].to.buffer(m * kSize, kSize));
    for (std::size_t s = 0; s < kStreams; ++s) {
      sender.rank.fill(streams[s].from.slice(m * kSize, kSize), seed_of(s, m));
      traffic.send(streams[s].send, streams[s].from.buffer(m * kSize, kSize));
    }
  }
  traffic.finish();
  for (std::size_t s = 0; s < kStreams; ++s) {
    for (std::size_t m = 0; m < kMessages; ++m) {
      require_content(receiver.rank, streams[s].to.slice(m * kSize, kSize), seed_of(s, m),
                      fmt::format("message {} of connection {}", m, s));
    }
  }
}

RULE(CN_11, Must, ApiRange::all(),  //
     .title = "a process connects over any of its devices to any device",
     .text =
         "Each device of a process connects to all devices of its peers that its network reaches. The connections of "
         "several devices exist at the same time.",
     .source = "transport/net.cc: the graph search and PXN choose the devices of both endpoints independently",
     .why =
         "If only one device can connect, channels over the second NIC of a host fail, or all channels use the first "
         "one.",
     .check =
         "Connects every two of three ranks in both directions, each over the devices of their link, and then sends a "
         "message on each connection.",
     .blind = "Devices of different rails, unless the topology routes between them.", .ranks = 3) {
  struct Link {
    Endpoint from, to;
    Connection connection;
  };
  constexpr std::size_t kRanks = 3;
  std::vector<Link> links;
  for (std::size_t i = 0; i < kRanks; ++i) {
    for (std::size_t j = 0; j < kRanks; ++j) {
      if (i == j) continue;
      Endpoint from = endpoint(i, j), to = endpoint(j, i);
      links.push_back({from, to, connect(from, to)});
    }
  }
  for (const Link& link : links) deliver(link.from, link.to, link.connection, {.size = 3000, .seed = random()()});
}

RULE(
    CN_24, Must, ApiRange::all(),  //
    .title = "connections are set up during traffic",
    .text = "listen, connect, accept and close on the service thread neither wait for the progress thread nor stop it.",
    .source = "proxy.cc: ncclProxyService and ncclProxyProgress are two threads",
    .why =
        "If a connection needs the progress thread to stop, a new communicator deadlocks while another one is in use.",
    .check = "Connects and closes eight times while a stream of messages runs between the same ranks.",
    .blind = "Stalls that are shorter than the time limit.",
    .faults = {{"aws/aws-ofi-nccl#1055", "the service and progress threads waited for each other's locks"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection busy = connect(sender, receiver);
  during_streams(busy, random(), 8, [&] {
    Connection other = connect(sender, receiver);
    other.send.close();
    other.receive.close();
    // On a loaded machine the streams outlast thousands of connections. The kernel limits the mappings of a process.
    sender.rank.free_attempts();
    receiver.rank.free_attempts();
  });
}

}  // namespace plugfest::conformance
