// CN: listeners: what they may rely on, how many, and who else knocks.
#include <fmt/format.h>

#include "conformance/net/message.h"
#include "conformance/net/stray_connection.h"
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
     .text = "listen initialises each byte of the handle that it uses later, the state of a connect included.",
     .source = "nothing promises zeroes; transport/net.cc happens to pass them") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device, {.handle_fill = 0xff});
  auto [send, receive] =
      control::finish(sender.rank.connect(sender.device, listener.handle()), receiver.rank.accept(listener));
  listener.close();
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

RULE(CN_14, Must, ApiRange::from(7),  //
     .title = "the device handle may be NULL",
     .text = "For host devices the devHandle argument of connect and accept is NULL, or points to NULL.",
     .source = "transport/net.cc: ncclNetGetDeviceHandle") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
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
     .title = "listening in vain costs nothing",
     .text = "listen and closeListen without an accept in between are normal and leave nothing behind.",
     .source = "transport/net.cc: of the ranks that share a comm one accepts, the others close their listeners") {
  Endpoint end = near_endpoint();
  auto cycle = [&] { end.rank.listen(end.device).close(); };
  for (int i = 0; i < 50; ++i) cycle();
  const control::ProcessFacts before = end.rank.process();
  constexpr int kCycles = 1500;
  for (int i = 0; i < kCycles; ++i) cycle();
  const control::ProcessFacts after = end.rank.process();
  // Room for what grows once, not with each cycle.
  constexpr int kSlack = 16;
  constexpr std::uint64_t kSlackBytes = 8 << 20;
  expect(after.file_descriptors <= before.file_descriptors + kSlack,
         fmt::format("rank {}: {} file descriptors after {} cycles of listen and closeListen, {} before",
                     end.rank.name(), after.file_descriptors, kCycles, before.file_descriptors));
  expect(after.threads <= before.threads + kSlack,
         fmt::format("rank {}: {} threads after {} cycles of listen and closeListen, {} before", end.rank.name(),
                     after.threads, kCycles, before.threads));
  expect(after.resident_bytes <= before.resident_bytes + kSlackBytes,
         fmt::format("rank {}: {} KiB resident after {} cycles of listen and closeListen, {} KiB before",
                     end.rank.name(), after.resident_bytes / 1024, kCycles, before.resident_bytes / 1024));
}

RULE(CN_20, Must, ApiRange::all(),  //
     .title = "what is sent before the accept arrives",
     .text = "One side may finish long before the other; a send posted right after connect is delivered.",
     .source = "transport/net.cc: no barrier between the two proxies") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  Connect connect = sender.rank.connect(sender.device, listener.handle());
  Accept accept = receiver.rank.accept(listener);
  // The receiver helps no more than connect needs.
  for (int i = 0; i < 64 && !connect.done(); ++i) connect.poll();
  while (!connect.done() && !accept.done()) {
    if (!connect.poll()) accept.poll();
  }
  if (!connect.done()) control::finish(connect, accept);
  const bool ahead = !accept.done();
  observe(ahead ? "connect was done before accept" : "accept was done before connect");

  constexpr std::size_t kSize = 5000;
  Registered from = allocate(sender.rank, connect.comm(), kSize);
  const std::uint64_t seed = random()();
  sender.rank.fill(from.memory, seed);
  control::Send send(connect.comm(), from.buffer());
  bool done = false;
  for (int i = 0; i < 64 && !done; ++i) done = send.turn();
  control::Accepting accepting(accept);
  if (ahead) control::finish({&accepting});
  const control::RecvComm comm = ahead ? accepting.comm() : accept.comm();
  listener.close();
  Registered to = allocate(receiver.rank, comm, kSize);
  control::Receive receive(comm, to.buffer());
  if (done) {
    control::finish({&receive});
  } else {
    control::finish({&receive, &send});
  }
  require_content(receiver.rank, to.memory, seed, "a message sent before the accept");
}

RULE(CN_22, Should, ApiRange::all(),  //
     .title = "strangers at the door do no harm",
     .text = "TCP connections to the listener that send garbage, or nothing, make accept neither fail nor wait.",
     .source = "NVIDIA/nccl #1808, #914") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Listener listener = receiver.rank.listen(receiver.device);
  std::vector<std::byte> garbage(64);
  for (std::byte& byte : garbage) byte = static_cast<std::byte>(random()());
  const StrayConnections strays(receiver.rank.pid(), garbage);
  if (strays.count() == 0) observe("no listening TCP socket to knock at");
  Accept accept = receiver.rank.accept(listener);
  for (int i = 0; i < 16; ++i) {
    expect(!accept.poll(),
           fmt::format("rank {}: accept took a stranger's connection for a peer's", receiver.rank.name()));
  }
  Connect connect = sender.rank.connect(sender.device, listener.handle());
  auto [send, receive] = control::finish(connect, accept);
  deliver(sender, send, receiver, receive, {.size = 1000, .seed = random()()});
}

}  // namespace plugfest::conformance
