// CN rules: listeners, their handles, and untrusted connections.
#include <fmt/format.h>

#include "conformance/net/connection/untrusted_connection.h"
#include "conformance/net/script/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Accept;
using control::Connect;
using control::Connection;
using control::Endpoint;
using control::Listener;
using control::Rank;

RULE(CN_03, Should, ApiRange::all(),  //
     .title = "listen does not rely on a zeroed handle",
     .text = "listen initialises every byte of the handle that is used later, including the state of a connect.",
     .source = "transport/net.cc happens to pass zeroed handles; no document promises it",
     .why = "No document promises that the handle is zeroed, and the state of a connect lives in it.",
     .check = "Fills the handle with 0xff before listen, connects with a copy, and delivers a message.",
     .blind = "Bytes that happen to be right when they are 0xff.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device, {.handle_fill = 0xff});
  auto [send, receive] =
      control::finish(sender.rank.connect(sender.device, listener.handle()), receiver.rank.accept(listener));
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

RULE(CN_14, Must, ApiRange::from(7),  //
     .title = "connect and accept take a NULL device handle",
     .text = "For host devices the devHandle argument of connect and accept is NULL or points to NULL.",
     .source = "transport/net.cc: ncclNetGetDeviceHandle",
     .why = "NCCL passes NULL, or the address of a NULL pointer, for devices that are not driven by the GPU.",
     .check = "Connects and accepts with each of the two and delivers a message.",
     .blind = "Devices of type UNPACK. For their accepts every rule allocates the device handle, as NCCL does.") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  for (const Endpoint& endpoint : {sender, receiver}) {
    const int type = Rank(endpoint.rank).properties(endpoint.device).net_device_type;
    if (type != 0) not_applicable(fmt::format("netDeviceType is {}, not 0 (HOST)", type));
  }
  for (const bool pointer : {false, true}) {
    Listener listener = receiver.rank.listen(receiver.device);
    auto [send, receive] =
        control::finish(sender.rank.connect(sender.device, listener.handle(), {.device_handle = pointer}),
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
  const control::ProcessFacts before = endpoint.rank.process();
  constexpr int kCycles = 1500;
  for (int i = 0; i < kCycles; ++i) cycle();
  const control::ProcessFacts after = endpoint.rank.process();
  // Each limit allows growth that happens once and excludes growth with each cycle.
  auto expect_at_most = [&](std::uint64_t limit, std::uint64_t now, std::string_view what) {
    expect(now <= limit, fmt::format("rank {}: {} {} after {} cycles of listen and closeListen, expected at most {}",
                                     endpoint.rank.name(), now, what, kCycles, limit));
  };
  expect_at_most(static_cast<std::uint64_t>(before.file_descriptors) + 16,
                 static_cast<std::uint64_t>(after.file_descriptors), "file descriptors");
  expect_at_most(static_cast<std::uint64_t>(before.threads) + 16, static_cast<std::uint64_t>(after.threads), "threads");
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
  if (!connect.done()) control::finish(connect, accept);
  const bool ahead = !accept.done();
  observe(ahead ? "connect was done before accept" : "accept was done before connect");

  constexpr std::size_t kSize = 5000;
  Registered from = allocate(sender.rank, connect.comm(), kSize);
  const std::uint64_t seed = random()();
  sender.rank.fill(from.memory, seed);
  control::Send send(connect.comm(), from.buffer());
  for (int i = 0; i < 64 && !send.done(); ++i) send.turn();
  control::Accepting accepting(accept);
  control::finish({&accepting});
  listener.close();
  Registered to = allocate(receiver.rank, accepting.comm(), kSize);
  control::Receive receive(accepting.comm(), to.buffer());
  control::finish({&receive, &send});
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
         "Opens TCP connections to all sockets on which the receiver listens, some silent and some with random bytes, "
         "then connects normally.",
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
  auto [send, receive] = control::finish(connect, accept);
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

}  // namespace plugfest::conformance
