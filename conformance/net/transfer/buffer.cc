// XF rules: memory of a transfer, *request, and calls that must not wait.
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
using control::Preset;
using control::Request;

RULE(XF_02, Must, ApiRange::all(),  //
     .title = "a call that cannot post stores NULL",
     .text =
         "An isend or irecv that cannot post yet returns Success and stores NULL in *request, whatever *request held "
         "before.",
     .source = "transport/net.cc: sendProxyProgress never clears *request") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kSize = 256;
  // As many as the version's header allows: so many receives, and as many sends for each buffer of a receive.
  const std::size_t most_receives = api() == 6 ? 8 : 32;
  const std::size_t most_sends =
      most_receives * static_cast<std::size_t>(std::clamp(sender.rank.properties(sender.device).max_recvs, 1, 64));
  Registered from = allocate(sender.rank, connection.send, most_sends * kSize);
  Registered to = allocate(receiver.rank, connection.receive, most_receives * kSize);
  auto require_stored = [&](const control::PointerOutcome& outcome) {
    expect(!outcome.untouched,
           fmt::format("{} returned Success and did not write *request, expected a request or NULL", outcome.call));
  };
  // Sends without a posted receive, then receives without a send.
  for (std::size_t i = 0; i < most_sends; ++i) {
    const control::PointerOutcome sent =
        connection.send.try_isend(from.buffer(i * kSize, kSize), 0, {.request = Preset::kPoison});
    if (!sent.ok()) break;  // XF-07 checks how many must be accepted
    require_stored(sent);
  }
  Connection other = control::connect(sender, receiver);
  control::Registration registration = other.receive.reg(to.memory);
  for (std::size_t i = 0; i < most_receives; ++i) {
    const control::PointerOutcome received =
        other.receive.try_irecv({{registration.buffer(i * kSize, kSize), 0}}, {.request = Preset::kPoison});
    if (!received.ok()) break;
    require_stored(received);
  }
}

RULE(XF_03, Must, ApiRange::all(),  //
     .title = "isend and irecv never wait",
     .text = "Neither call waits for the peer, for space in a socket buffer or for another thread.",
     .source = "proxy.cc: one thread drives all connections of a GPU") {
  Endpoint left = near_endpoint(), right = far_endpoint();
  Connection out = control::connect(left, right);
  Connection back = control::connect(right, left);
  constexpr std::size_t kSize = 16 << 20;
  Registered from_left = allocate(left.rank, out.send, kSize), to_right = allocate(right.rank, out.receive, kSize);
  Registered from_right = allocate(right.rank, back.send, kSize), to_left = allocate(left.rank, back.receive, kSize);
  const std::uint64_t seed = random()();
  left.rank.fill(from_left.memory, seed);
  right.rank.fill(from_right.memory, seed + 1);

  // Each side sends more than a socket buffers while its peer is stopped: a call that waits times out.
  Traffic traffic(stall_limit());
  traffic.send(out.send, from_left.buffer());
  right.rank.freeze();
  for (int i = 0; i < 32; ++i) traffic.step();
  right.rank.thaw();
  left.rank.freeze();
  control::Send opposite(back.send, from_right.buffer());
  for (int i = 0; i < 32 && !opposite.done(); ++i) opposite.turn();
  left.rank.thaw();

  traffic.receive(out.receive, to_right.buffer());
  traffic.receive(back.receive, to_left.buffer());
  if (!opposite.request()) {
    traffic.send(back.send, from_right.buffer());
  } else if (!opposite.done()) {
    traffic.posted_send(back.send, opposite.request());
  }
  traffic.finish();
  require_content(right.rank, to_right.memory, seed, "the message to the right");
  require_content(left.rank, to_left.memory, seed + 1, "the message to the left");

  // The same with a receive posted before its owner is stopped, since a plugin may defer sends until then.
  left.rank.fill(from_left.memory, seed + 2);
  Traffic ready(stall_limit());
  ready.posted_receive(out.receive, post_ahead(out.receive, to_right, kSize, 1).front());
  right.rank.freeze();
  ready.send(out.send, from_left.buffer());
  ready.pause(out.receive);
  for (int i = 0; i < 32; ++i) ready.step();
  right.rank.thaw();
  ready.resume(out.receive);
  ready.finish();
  require_content(right.rank, to_right.memory, seed + 2, "the message to a stopped receiver");
}

RULE(XF_10, Must, ApiRange::all(),  //
     .title = "memory behind a short message is not written",
     .text = "Bytes of the receive buffer beyond the received size keep their values.",
     .source = "transport/net.cc: those bytes hold flags of the LL protocols from older steps") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kPosted = 200000;
  constexpr std::uint8_t kFlags = 0xab;
  Registered from = allocate(sender.rank, connection.send, kPosted);
  Registered to = allocate(receiver.rank, connection.receive, kPosted);
  for (const std::size_t size : std::initializer_list<std::size_t>{0, 1, 7, 4096, 4097, 65537, 199999}) {
    const std::uint64_t seed = random()();
    sender.rank.fill(from.slice(0, size), seed);
    receiver.rank.set(to.memory, kFlags);
    control::Receive receive(connection.receive, to.buffer());
    control::Send send(connection.send, from.buffer(0, size));
    control::finish({&receive, &send});
    require_content(receiver.rank, to.slice(0, size), seed, fmt::format("a message of {}", counted(size, "byte")));
    const control::Check rest = receiver.rank.check_set(to.slice(size, kPosted - size), kFlags);
    expect(rest.same, fmt::format("rank {}: memory behind a message of {} was written, expected no change: {}",
                                  receiver.rank.name(), counted(size, "byte"), rest.difference));
  }
}

RULE(XF_11, Must, ApiRange::all(),  //
     .title = "an oversized message never writes past the receive",
     .text =
         "A send larger than its receive ends in an error or is truncated. Memory beyond the posted size is not "
         "written.",
     .source = "ext-net README: irecv; NCCL 2.20 to 2.23 relied on truncation") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::uint8_t kBehind = 0xcd;
  struct Sizes {
    std::size_t posted, sent;
  };
  for (const auto [posted, sent] :
       {Sizes{1000, 60000}, Sizes{0, 64}, Sizes{1, 2}, Sizes{1000, 1001}, Sizes{4090, 4160}, Sizes{65536, 65537}}) {
    // A connection of its own, since NCCL does not use one after an error.
    Connection connection = control::connect(sender, receiver);
    Registered from = allocate(sender.rank, connection.send, sent);
    Registered to = allocate(receiver.rank, connection.receive, sent + 64);
    sender.rank.fill(from.memory, random()());
    receiver.rank.set(to.memory, kBehind);

    std::optional<Request> send, receive;
    auto result_of = [](const control::TestOutcome& outcome) {
      return outcome.ok() ? fmt::format("reported {} bytes", outcome.sizes.at(0))
                          : "failed with " + control::result_name(outcome.code);
    };
    std::string send_result = "did not complete", receive_result = "did not complete";
    bool sending = true, receiving = true;
    for (int i = 0; i < 500 && (sending || receiving); ++i) {
      if (sending && !send) {
        const control::PointerOutcome outcome = connection.send.try_isend(from.buffer());
        sending = outcome.ok();
        if (!sending) send_result = "was refused with " + control::result_name(outcome.code);
        if (outcome.ok() && outcome.value != 0) send = connection.send.request(outcome.value);
      } else if (sending) {
        const control::TestOutcome outcome = send->try_test();
        sending = outcome.ok() && outcome.done == 0;
        if (!sending) send_result = result_of(outcome);
      }
      if (receiving && !receive) {
        const Request accepted = connection.receive.irecv(to.buffer(0, posted));
        if (accepted) receive = accepted;
      } else if (receiving) {
        const control::TestOutcome outcome = receive->try_test();
        receiving = outcome.ok() && outcome.done == 0;
        if (!receiving) receive_result = result_of(outcome);
      }
    }
    observe(fmt::format("{} bytes sent into a receive of {}: the send {}, the receive {}", sent, posted, send_result,
                        receive_result));
    const control::Check behind = receiver.rank.check_set(to.slice(posted, sent + 64 - posted), kBehind);
    expect(behind.same,
           fmt::format("rank {}: a message of {} bytes wrote behind its receive of {} bytes, expected no change: {}",
                       receiver.rank.name(), sent, posted, behind.difference));
  }
}

RULE(XF_16, Must, ApiRange::all(),  //
     .title = "a completed request no longer uses its buffer",
     .text =
         "After test reports done, the plugin neither reads the memory of a send nor writes the memory of a receive.",
     .source = "transport/net.cc: the GPU gets the buffer back at once") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kSlots = 8, kSize = 30000, kMessages = 64;
  Registered from = allocate(sender.rank, connection.send, kSlots * kSize);
  Registered to = allocate(receiver.rank, connection.receive, kSlots * kSize);
  const std::uint64_t seed = random()();
  constexpr std::uint8_t kNext = 0x77;

  // The memory of each send is overwritten as soon as the send is done. The received messages must not show it.
  std::vector<Traffic::Ticket> sends, receives;
  for (std::size_t round = 0; round < kMessages / kSlots; ++round) {
    Traffic traffic(stall_limit());
    sends.clear();
    receives.clear();
    for (std::size_t i = 0; i < kSlots; ++i) {
      sender.rank.fill(from.slice(i * kSize, kSize), seed + round * kSlots + i);
      receives.push_back(traffic.receive(connection.receive, to.buffer(i * kSize, kSize)));
      sends.push_back(traffic.send(connection.send, from.buffer(i * kSize, kSize)));
    }
    for (std::size_t i = 0; i < kSlots; ++i) {
      traffic.until_done(sends[i]);
      sender.rank.set(from.slice(i * kSize, kSize), kNext);
    }
    traffic.finish();
    // The receive memory is overwritten too. A later transfer must not write it.
    for (std::size_t i = 0; i < kSlots; ++i) {
      require_content(receiver.rank, to.slice(i * kSize, kSize), seed + round * kSlots + i,
                      fmt::format("message {}, whose memory was overwritten after done", round * kSlots + i));
      receiver.rank.set(to.slice(i * kSize, kSize), kNext);
    }
    deliver(sender, receiver, connection, {.size = 1000, .seed = random()()});
    const control::Check later = receiver.rank.check_set(to.memory, kNext);
    expect(later.same, fmt::format("rank {}: memory of completed receives was written, expected no change: {}",
                                   receiver.rank.name(), later.difference));
  }

  // A receiver that is stopped takes no data, so the sender may report done only for what it has copied.
  constexpr std::size_t kLarge = 8 << 20;
  Registered large_from = allocate(sender.rank, connection.send, kLarge);
  Registered large_to = allocate(receiver.rank, connection.receive, kLarge);
  const std::uint64_t large_seed = random()();
  sender.rank.fill(large_from.memory, large_seed);
  control::Receive receiving(connection.receive, large_to.buffer());
  control::Send sending(connection.send, large_from.buffer());
  receiving.turn();
  receiver.rank.freeze();
  for (int i = 0; i < 200 && !sending.done(); ++i) sending.turn();
  if (sending.done()) sender.rank.set(large_from.memory, kNext);
  receiver.rank.thaw();
  control::finish({&receiving, &sending});
  require_content(receiver.rank, large_to.memory, large_seed, "a message whose memory was overwritten after done");
}

RULE(XF_19, Must, ApiRange::from(9),  //
     .title = "optional completion affects only its own receive",
     .text =
         "A receive posted with *request = 1 may complete early or like any other. irecv stores a testable request or "
         "NULL. Later receives are complete when test reports it.",
     .source = "transport/net.cc: recvProxyProgress, ignoreCompletion; aws-ofi-nccl #797, #1216, #1217") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  Registered to = allocate(receiver.rank, connection.receive, 4096);
  Registered from = allocate(sender.rank, connection.send, 4096);
  const control::PointerOutcome marked = connection.receive.try_irecv({{to.buffer(), 0}}, {.request = Preset::kMarker});
  control::require_success(marked);
  constexpr std::uint64_t kMarkerValue = 1;
  expect(marked.value != kMarkerValue,
         fmt::format("{} left 0x1 in *request, expected a request or NULL: NCCL would test 0x1", marked.call));
  Traffic traffic(stall_limit());
  if (marked.value != 0) {
    traffic.posted_receive(connection.receive, connection.receive.request(marked.value));
  } else {
    traffic.receive(connection.receive, to.buffer());
  }
  traffic.send(connection.send, from.buffer());
  traffic.finish();

  // A receive without the mark is not done before its send, whatever the receive before it was.
  Request plain = post_ahead(connection.receive, to, 4096, 1).front();
  for (int i = 0; i < 64; ++i) {
    expect(!plain.test(), fmt::format("rank {}: test wrote *done = 1 for a receive before its send, posted without the "
                                      "mark of optional completion, expected 0",
                                      receiver.rank.name()));
  }
  Traffic unmarked(stall_limit());
  unmarked.posted_receive(connection.receive, plain);
  unmarked.send(connection.send, from.buffer());
  unmarked.finish();

  // Receives with and without the mark alternate. The content of one without it is compared as soon as it is done.
  control::stream(
      connection.send, connection.receive,
      {.count = 2000, .seed = random()(), .sizes = {8, 64, 4096, 20000}, .window = 8, .request = Preset::kMarker});
}

RULE(XF_30, Must, ApiRange::all(),  //
     .title = "a stalled connection does not block others",
     .text =
         "A connection that is full, or whose peer is silent, does not block other connections of the same device and "
         "thread.",
     .source = "proxy.cc: progressOps serves one connection after the other") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection without_receives = control::connect(sender, receiver);
  Connection without_sends = control::connect(sender, receiver);
  Connection busy = control::connect(sender, receiver);
  constexpr std::size_t kOperations = 8, kSize = 100000;
  Registered from = allocate(sender.rank, without_receives.send, kOperations * kSize);
  Registered to = allocate(receiver.rank, without_sends.receive, kOperations * kSize);
  Traffic stalled(stall_limit());
  for (std::size_t i = 0; i < kOperations; ++i) {
    stalled.send(without_receives.send, from.buffer(i * kSize, kSize));
    stalled.receive(without_sends.receive, to.buffer(i * kSize, kSize));
  }
  for (std::size_t i = 0; i < 4 * kOperations; ++i) stalled.step();
  for (int round = 0; round < 3; ++round) {
    control::stream(busy.send, busy.receive, {.count = 300, .seed = random()(), .sizes = {1, 4096, 50000}});
    for (int i = 0; i < 8; ++i) stalled.step();
  }
}

RULE(XF_31, Must, ApiRange::all(),  //
     .title = "messages flow in both directions at once",
     .text = "Two ranks send large messages to each other at the same time, with one thread per rank.",
     .source = "proxy.cc: one progress thread sends and receives") {
  Endpoint left = near_endpoint(), right = far_endpoint();
  Connection out = control::connect(left, right), back = control::connect(right, left);
  constexpr std::size_t kMessages = 6, kSize = 2 << 20;
  Registered from_left = allocate(left.rank, out.send, kMessages * kSize);
  Registered to_right = allocate(right.rank, out.receive, kMessages * kSize);
  Registered from_right = allocate(right.rank, back.send, kMessages * kSize);
  Registered to_left = allocate(left.rank, back.receive, kMessages * kSize);
  const std::uint64_t seed = random()();
  Traffic traffic(stall_limit());
  for (std::size_t i = 0; i < kMessages; ++i) {
    left.rank.fill(from_left.slice(i * kSize, kSize), seed + 2 * i);
    right.rank.fill(from_right.slice(i * kSize, kSize), seed + 2 * i + 1);
    traffic.send(out.send, from_left.buffer(i * kSize, kSize));
    traffic.send(back.send, from_right.buffer(i * kSize, kSize));
    traffic.receive(out.receive, to_right.buffer(i * kSize, kSize));
    traffic.receive(back.receive, to_left.buffer(i * kSize, kSize));
  }
  traffic.finish();
  for (std::size_t i = 0; i < kMessages; ++i) {
    require_content(right.rank, to_right.slice(i * kSize, kSize), seed + 2 * i, fmt::format("message {} out", i));
    require_content(left.rank, to_left.slice(i * kSize, kSize), seed + 2 * i + 1, fmt::format("message {} back", i));
  }
}

}  // namespace plugfest::conformance
