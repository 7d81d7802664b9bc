// XF rules: content, order, sizes and number of single messages.
#include <fmt/format.h>

#include <algorithm>

#include "conformance/net/script/message.h"
#include "conformance/net/script/traffic.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Request;

RULE(XF_01, Must, ApiRange::all(),  //
     .title = "payloads of every size arrive unchanged",
     .text = "The receive buffer contains the bytes that isend sent, for every size.", .source = "transport/net.cc") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kKi = 1024, kMi = 1024 * 1024;
  for (const std::size_t size : {std::size_t{1},
                                 std::size_t{3},
                                 std::size_t{7},
                                 std::size_t{8},
                                 std::size_t{63},
                                 std::size_t{64},
                                 std::size_t{65},
                                 std::size_t{127},
                                 std::size_t{128},
                                 std::size_t{129},
                                 std::size_t{4095},
                                 std::size_t{4096},
                                 std::size_t{4097},
                                 8 * kKi,
                                 64 * kKi - 1,
                                 64 * kKi,
                                 64 * kKi + 1,
                                 128 * kKi,
                                 512 * kKi,
                                 std::size_t{614400},
                                 kMi,
                                 4 * kMi,
                                 16 * kMi}) {
    deliver(sender, receiver, connection, {.size = size, .seed = random()()});
  }
}

RULE(XF_05, Must, ApiRange::all(),  //
     .title = "either side may post first",
     .text =
         "An isend before its irecv is accepted, or deferred with NULL. An irecv before its isend is accepted. Both "
         "complete once the other side has posted.",
     .source = "transport/net.cc: the two proxies post independently") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kSize = 5000;
  Registered from = allocate(sender.rank, connection.send, 2 * kSize);
  Registered to = allocate(receiver.rank, connection.receive, 2 * kSize);
  const std::uint64_t seed = random()();
  sender.rank.fill(from.slice(0, kSize), seed);
  sender.rank.fill(from.slice(kSize, kSize), seed + 1);

  // The send first: neither isend nor test may fail or block, however often NCCL calls them.
  control::Send early(connection.send, from.buffer(0, kSize));
  for (int attempt = 0; attempt < 64 && !early.done(); ++attempt) early.turn();
  control::Receive late(connection.receive, to.buffer(0, kSize));
  control::finish({&late, &early});
  require_content(receiver.rank, to.slice(0, kSize), seed, "a message sent before its receive was posted");

  // The receive first: it must not be done before the send.
  control::Receive waiting(connection.receive, to.buffer(kSize, kSize));
  for (int attempt = 0; attempt < 64; ++attempt) {
    expect(!waiting.turn(), fmt::format("rank {}: test wrote *done = 1 for a receive before its send, expected 0",
                                        receiver.rank.name()));
  }
  control::Send following(connection.send, from.buffer(kSize, kSize));
  control::finish({&waiting, &following});
  require_content(receiver.rank, to.slice(kSize, kSize), seed + 1, "a message sent after its receive was posted");
}

RULE(XF_06, Must, ApiRange::all(),  //
     .title = "messages arrive in the order of sending",
     .text = "For receives of one buffer, the k-th accepted isend goes to the k-th accepted irecv of the connection.",
     .source = "transport/net.cc identifies steps by counting") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  control::stream(connection.send, connection.receive,
                  {.count = 10000,
                   .seed = random()(),
                   .sizes = {0, 1, 3, 64, 1000, 1000, 4096, 4097, 20000},
                   .posted_size = 20000,
                   .window = 8});
}

RULE(XF_07, Must, ApiRange::all(),  //
     .title = "all requests that NCCL posts can be in flight",
     .text =
         "The plugin accepts, or defers with NULL, at least 8 receives of maxRecvs buffers each and 8 x maxRecvs "
         "sends. It refuses none of them with an error. [S]: as many as the version's NCCL_NET_MAX_REQUESTS (v6: 8, "
         "later: 32).",
     .source = "transport/net.cc: NCCL_STEPS <= NCCL_NET_MAX_REQUESTS; the header's comment on requests") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  const std::size_t group = static_cast<std::size_t>(std::max(1, receiver.rank.properties(receiver.device).max_recvs));
  constexpr std::size_t kMust = 8, kSize = 64;
  const std::size_t limit = api() == 6 ? 8 : 32;
  Registered from = allocate(sender.rank, connection.send, limit * group * kSize);
  Registered to = allocate(receiver.rank, connection.receive, limit * group * kSize);
  const std::uint64_t seed = random()();
  Traffic traffic(stall_limit(), limit * group);

  // An error before `must` operations are in flight breaks the rule; an error before `maximum` breaks its [S] part.
  auto refused = [&](const control::Outcome& outcome, std::size_t in_flight, std::size_t must, std::size_t maximum) {
    const std::string message = fmt::format(
        "{} returned {} with {} in flight, expected at least {} to be accepted or "
        "deferred with NULL",
        outcome.call, control::result_name(outcome.code), in_flight, in_flight < must ? must : maximum);
    expect(in_flight >= must, message);
    should(false, message);
  };

  std::size_t receives = 0;
  for (bool more = true; more && receives < limit;) {
    std::vector<control::Part> parts;
    for (std::size_t i = 0; i < group; ++i) {
      parts.push_back({to.buffer((receives * group + i) * kSize, kSize), static_cast<int>(i)});
    }
    const control::PointerOutcome outcome = connection.receive.try_irecv(parts);
    if (!outcome.ok()) {
      refused(outcome, receives, kMust, limit);
      return;  // NCCL does not use a connection after an error
    }
    more = outcome.value != 0;
    if (more) {
      traffic.posted_receive(connection.receive, connection.receive.request(outcome.value));
      ++receives;
    }
  }
  observe(fmt::format("{} of {} in flight", counted(static_cast<std::size_t>(receives), "receive"),
                      counted(static_cast<std::size_t>(group), "buffer")));

  // NULL can mean that the posted receive is not known to the sender yet, so isend is tried again many times.
  std::size_t sends = 0;
  for (int deferred = 0; deferred < 200 && sends < receives * group;) {
    const control::Buffer buffer = from.buffer(sends * kSize, kSize);
    const int tag = static_cast<int>(sends % group);
    sender.rank.fill(buffer.slice, seed + sends);
    const control::PointerOutcome outcome = connection.send.try_isend(buffer, tag);
    if (!outcome.ok()) {
      refused(outcome, sends, kMust * group, limit * group);
      return;
    }
    if (outcome.value == 0) {
      ++deferred;
      continue;
    }
    deferred = 0;
    traffic.posted_send(connection.send, connection.send.request(outcome.value), tag);
    ++sends;
  }
  observe(counted(static_cast<std::size_t>(sends), "send") + " in flight");

  // The deferred sends follow. Every message must arrive in its buffer.
  for (std::size_t i = sends; i < receives * group; ++i) {
    sender.rank.fill(from.slice(i * kSize, kSize), seed + i);
    traffic.send(connection.send, from.buffer(i * kSize, kSize), static_cast<int>(i % group));
  }
  traffic.finish();
  for (std::size_t i = 0; i < receives * group; ++i) {
    require_content(receiver.rank, to.slice(i * kSize, kSize), seed + i,
                    fmt::format("message {} of {} in flight", i, receives * group));
  }
}

RULE(XF_09, Must, ApiRange::all(),  //
     .title = "test reports the size that was sent",
     .text = "A send may be smaller than the posted receive. test reports the sent size on both sides.",
     .source = "transport/net.cc: recvProxyProgress posts whole buffers; NVIDIA/nccl #309, #515") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kPosted = 65536;
  Registered from = allocate(sender.rank, connection.send, kPosted);
  Registered to = allocate(receiver.rank, connection.receive, kPosted);
  for (const std::size_t size : std::initializer_list<std::size_t>{1, 8, 1000, 4096, 4097, 65535, 65536}) {
    const std::uint64_t seed = random()();
    sender.rank.fill(from.slice(0, size), seed);
    control::Receive receive(connection.receive, to.buffer(0, kPosted));
    control::Send send(connection.send, from.buffer(0, size));
    control::finish({&receive, &send});
    const std::string what = fmt::format("a message of {} into a receive of {}", counted(size, "byte"), kPosted);
    require_size(receiver.rank.name(), receive.size(), size, what);
    require_content(receiver.rank, to.slice(0, size), seed, what);
    if (send.size() == 0) {
      should(false, fmt::format("rank {}: test of a completed send left sizes[0] at 0, expected {}", sender.rank.name(),
                                size));
    } else {
      require_size(sender.rank.name(), send.size(), size, what);
    }
  }
}

RULE(XF_12, Must, ApiRange::all(),  //
     .title = "zero-byte messages are delivered",
     .text =
         "isend and irecv accept zero-byte messages. They keep their place in the order and complete on both sides "
         "with size 0, also when the receive was posted with size 0.",
     .source = "transport/net.cc: a p2p operation of 0 bytes is one step; NVIDIA/nccl #345; aws-ofi-nccl #54, #804") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  for (const std::size_t posted : {std::size_t{0}, std::size_t{4096}}) {
    const int reported = deliver(sender, receiver, connection, {.seed = random()(), .posted_size = posted});
    require_size(receiver.rank.name(), reported, 0, fmt::format("a message of 0 bytes into a receive of {}", posted));
  }
  control::stream(connection.send, connection.receive,
                  {.count = 400, .seed = random()(), .sizes = {0, 0, 1, 64, 5000}, .posted_size = 0});
  control::stream(connection.send, connection.receive,
                  {.count = 400, .seed = random()(), .sizes = {0, 0, 1, 64, 5000}, .posted_size = 5000});
  const int group = receiver.rank.properties(receiver.device).max_recvs;
  if (group > 1) {
    control::stream(connection.send, connection.receive,
                    {.count = 400,
                     .seed = random()(),
                     .sizes = {0, 0, 1, 64},
                     .posted_size = 64,
                     .group = static_cast<std::uint32_t>(std::min(group, 8))});
  }
}

RULE(XF_14, Must, ApiRange::all(),  //
     .title = "argument arrays are copied before the call returns",
     .text =
         "data, sizes, tags, mhandles and phandles are temporary arrays on NCCL's stack: the plugin does not read them "
         "after the call.",
     .source = "transport/net.cc: recvProxyProgress") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  const std::size_t group =
      static_cast<std::size_t>(std::clamp(receiver.rank.properties(receiver.device).max_recvs, 1, 4));
  constexpr std::size_t kReceives = 4, kSize = 3000;
  Registered from = allocate(sender.rank, connection.send, kReceives * group * kSize);
  Registered to = allocate(receiver.rank, connection.receive, kReceives * group * kSize);
  const std::uint64_t seed = random()();

  // The receives are posted and tested before anything is sent. Each call in a rank overwrites the argument arrays of
  // the calls before it, so a plugin that reads them later finds wrong values.
  Traffic traffic(stall_limit());
  for (std::size_t r = 0; r < kReceives; ++r) {
    std::vector<control::Part> parts;
    for (std::size_t i = 0; i < group; ++i) {
      parts.push_back({to.buffer((r * group + i) * kSize, kSize), static_cast<int>(i)});
    }
    traffic.receive(connection.receive, parts);
  }
  for (int i = 0; i < 32; ++i) traffic.step();
  for (std::size_t i = 0; i < kReceives * group; ++i) {
    sender.rank.fill(from.slice(i * kSize, kSize), seed + i);
    traffic.send(connection.send, from.buffer(i * kSize, kSize), static_cast<int>(i % group));
  }
  traffic.finish();
  for (std::size_t i = 0; i < kReceives * group; ++i) {
    require_content(receiver.rank, to.slice(i * kSize, kSize), seed + i, fmt::format("message {}", i));
  }
}

}  // namespace plugfest::conformance
