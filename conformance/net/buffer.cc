// XF rules: memory of a transfer, *request, and calls that must not wait.
#include <fmt/format.h>

#include <algorithm>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

RULE_ON(MessageRule, XF_02, Must, ApiRange::all(),  //
        .title = "a call that cannot post stores NULL",
        .text =
            "An isend or irecv that cannot post yet returns Success and stores NULL in *request, regardless of the "
            "previous content of *request.",
        .source = "transport/net.cc: sendProxyProgress never clears *request",
        .why = "NCCL does not clear its request slot. A stale pointer in it is tested as if it were the new request.",
        .check =
            "Presets *request to an invalid pointer, posts sends without receives and receives without sends, and "
            "looks at each *request.",
        .blind = "A plugin that defers only under load.") {
  // The most that the version's header allows: this number of receives, and this number of sends for each buffer of a
  // receive.
  const std::size_t most_receives = api() == 6 ? 8 : 32;
  const std::size_t most_sends = most_receives * max_recvs();
  Flow sends = make_flow(most_sends, 256), receives = make_flow(most_receives, 256);
  // XF-07 checks how many the plugin must accept.
  auto may_go_on = [&](const PointerOutcome& outcome) {
    expect(!outcome.ok() || !outcome.untouched, [&] {
      return fmt::format("{} returned Success and did not write *request, expected a request or NULL", outcome.call);
    });
    return outcome.ok();
  };
  const PostOptions poison = {.request = Preset::kPoison};
  for (std::size_t i = 0; i < most_sends; ++i)
    if (!may_go_on(sends.send_comm().try_isend(sends.source(i), 0, poison))) break;
  for (std::size_t i = 0; i < most_receives; ++i)
    if (!may_go_on(receives.recv_comm().try_irecv({{receives.target(i), 0}}, poison))) break;
}

RULE_ON(MessageRule, XF_03, Must, ApiRange::all(),  //
        .title = "isend and irecv never wait",
        .text = "Neither call waits for the peer, for space in a socket buffer or for another thread.",
        .source = "proxy.cc: one thread drives all connections of a GPU",
        .why =
            "One thread drives all connections of a GPU. A call that waits stops them all, and two ranks that wait for "
            "each other hang.",
        .check =
            "Sends 16 MiB in both directions while the receiving process is stopped, before and after it has posted "
            "its receive.",
        .blind = "Waits of less than the time limit of a call, and locks that only contention holds for long.",
        .faults = {{"autoscriptlabs/nccl-mesh-plugin#19",
                    "isend waited for room in the socket buffer, and rings of three ranks hung"},
                   {"autoscriptlabs/nccl-mesh-plugin#14",
                    "isend waited until a large message was written, and two ranks that sent to each other hung"}}) {
  Endpoint left = sender(), right = receiver();
  constexpr std::size_t kSize = 16 << 20;
  Flow out = make_flow(left, right, 1, kSize), back = make_flow(right, left, 1, kSize);
  // Each rank sends more than a socket buffers while its peer is stopped: a call that waits times out.
  auto send_to_stopped = [&](Flow& flow, Rank& peer) {
    flow.send(0);
    peer.freeze();
    traffic().steps(32);
    peer.thaw();
  };
  send_to_stopped(out, right.rank);
  traffic().pause(out.send_comm());
  send_to_stopped(back, left.rank);
  traffic().resume(out.send_comm());
  out.receive(0);
  back.receive(0);
  traffic().finish();
  out.check();
  back.check();

  // As above, with a receive posted before its rank is stopped, since a plugin may defer sends until then.
  out.receive(0);
  traffic().post_receives();
  traffic().pause(out.recv_comm());
  send_to_stopped(out, right.rank);
  traffic().resume(out.recv_comm());
  out.finish();
}

RULE_ON(MessageRule, XF_10, Must, ApiRange::all(),  //
        .title = "memory behind a short message is not written",
        .text = "Bytes of the receive buffer beyond the received size keep their values.",
        .source = "transport/net.cc: those bytes hold flags of the LL protocols from older steps",
        .why =
            "The bytes behind a short message hold flags of the LL protocols. A GPU that finds them changed takes old "
            "data for new.",
        .check = "Fills the receive buffer, sends shorter messages of seven sizes and compares the rest of the buffer.",
        .blind = "Writes that restore the bytes before test reports done.") {
  constexpr std::size_t kPosted = 200000;
  constexpr std::uint8_t kFlags = 0xab;
  Flow flow = make_flow(1, kPosted);
  for (const std::size_t size : {0u, 1u, 7u, 4096u, 4097u, 65537u, 199999u}) {
    flow.receiver().set(flow.to().memory, kFlags);
    flow.receive(0);
    flow.send(0, size);
    flow.finish();
    const Check rest = flow.receiver().check_set(flow.to().slice(size, kPosted - size), kFlags);
    expect(rest.same, [&] {
      return fmt::format("rank {}: memory behind a message of {} was written, expected no change: {}",
                         flow.receiver().name(), counted(size, "byte"), rest.difference);
    });
  }
}

RULE_ON(MessageRule, XF_11, Must, ApiRange::all(),  //
        .title = "an oversized message never writes past the receive",
        .text =
            "A send larger than its receive ends in an error or is truncated. Memory beyond the posted size is not "
            "written.",
        .source = "ext-net README: irecv; NCCL 2.20 to 2.23 relied on truncation",
        .why =
            "A sender and a receiver of different programs can disagree about a size. Even then, nothing outside the "
            "receive buffer may be overwritten.",
        .check =
            "Sends messages that are 1 to 59000 bytes too long into six sizes of receives and compares the memory "
            "behind each.",
        .blind = "Whether an error or truncation is right: versions of NCCL differ, so the rule records the outcome.",
        .faults = {{"google/nccl-fastsocket", "the receiver took the length from the sender's header without a check"},
                   {"aws/aws-ofi-nccl#442", "a receive smaller than its send failed with registered buffers"}}) {
  constexpr std::uint8_t kBehind = 0xcd;
  struct Sizes {
    std::size_t posted, sent;
  };
  for (const auto [posted, sent] :
       {Sizes{1000, 60000}, Sizes{0, 64}, Sizes{1, 2}, Sizes{1000, 1001}, Sizes{4090, 4160}, Sizes{65536, 65537}}) {
    // A separate connection, since NCCL does not use one after an error.
    Flow flow = make_flow(1, sent + 64);
    flow.receiver().set(flow.to().memory, kBehind);
    Trial send = Trial::send(flow.send_comm(), flow.fill(0, sent));
    Trial receive = Trial::receive(flow.recv_comm(), {{flow.target(0, posted), 0}});
    drive({&send, &receive}, 500);
    observe(fmt::format("{} bytes sent into a receive of {}: the send {}, the receive {}", sent, posted,
                        send.describe(), receive.describe()));
    const Check behind = flow.receiver().check_set(flow.to().slice(posted, sent + 64 - posted), kBehind);
    expect(behind.same, [&, posted = posted, sent = sent] {
      return fmt::format("rank {}: a message of {} bytes wrote behind its receive of {} bytes, expected no change: {}",
                         flow.receiver().name(), sent, posted, behind.difference);
    });
  }
}

RULE_ON(
    MessageRule, XF_16, Must, ApiRange::all(),  //
    .title = "a completed request no longer uses its buffer",
    .text =
        "After test reports done, the plugin neither reads the memory of a send nor writes the memory of a receive.",
    .source = "transport/net.cc: the GPU gets the buffer back at once",
    .why =
        "NCCL gives the buffer back to the GPU as soon as test reports done. A plugin that still reads it sends the "
        "next step's data.",
    .check =
        "Overwrites the memory of each send and receive as soon as it is done, also while the receiver is stopped in "
        "mid-message, and compares all contents.",
    .blind = "Reads that happen only when a packet is lost after the completion.") {
  constexpr std::size_t kSlots = 8, kRounds = 8;
  constexpr std::uint8_t kNext = 0x77;
  Flow flow = make_flow(kSlots, 30000);
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::vector<Flow::Ticket> sends;
    for (std::size_t i = 0; i < kSlots; ++i) {
      flow.receive(i);
      sends.push_back(flow.send(i));
    }
    // The memory of each send is overwritten as soon as the send is done. The received messages must not show it.
    for (std::size_t i = 0; i < kSlots; ++i) {
      traffic().until_done(sends[i]);
      flow.sender().set(flow.source(i).slice, kNext);
    }
    flow.finish();
    // The receive memory is overwritten too. A later transfer must not write it.
    flow.receiver().set(flow.to().memory, kNext);
    deliver(sender(), receiver(), flow.connection(), {.size = 1000, .seed = random()()});
    const Check later = flow.receiver().check_set(flow.to().memory, kNext);
    expect(later.same, [&] {
      return fmt::format("rank {}: memory of completed receives was written, expected no change: {}",
                         flow.receiver().name(), later.difference);
    });
  }

  // A stopped receiver takes no data, so the sender may report done only for data that it has copied.
  Flow large = make_flow(flow.connection(), 1, 8 << 20);
  large.receive(0);
  traffic().step();
  traffic().pause(large.recv_comm());
  const Flow::Ticket sent = large.send(0);
  large.receiver().freeze();
  traffic().steps(200);
  if (traffic().done(sent)) large.sender().set(large.source(0).slice, kNext);
  large.receiver().thaw();
  traffic().resume(large.recv_comm());
  large.finish();
}

RULE_ON(MessageRule, XF_19, Must, ApiRange::from(9),  //
        .title = "optional completion affects only its own receive",
        .text =
            "A receive posted with *request = 1 (optional completion) may complete early or like any other. irecv "
            "stores a testable request or NULL. Later receives are complete when test reports it.",
        .source = "transport/net.cc: recvProxyProgress, ignoreCompletion; aws-ofi-nccl #797, #1216, #1217",
        .why =
            "NCCL marks receives of LL as optional, but not others on the same comm. If the mark outlives its receive, "
            "test reports data as received that has not arrived.",
        .check =
            "Posts a marked receive, then an unmarked one that must not be done before its send, then 2000 messages "
            "with and without the mark.",
        .blind = "Flags that are inherited through a pool of more than 8 requests.",
        .faults = {{"aws/aws-ofi-nccl#1216", "the flag of an earlier send stayed set in a reused request"},
                   {"aws/aws-ofi-nccl#797", "a marked receive was done before its data had arrived"}}) {
  Flow flow = make_flow(1, 4096);
  const PointerOutcome marked = flow.recv_comm().try_irecv({{flow.target(0), 0}}, {.request = Preset::kMarker});
  require_success(marked);
  constexpr std::uint64_t kMarkerValue = 1;
  expect(marked.value != kMarkerValue,
         fmt::format("{} left 0x1 in *request, expected a request or NULL: NCCL would test 0x1", marked.call));
  if (marked.value != 0)
    traffic().posted_receive(flow.recv_comm(), flow.recv_comm().request(marked.value));
  else
    flow.receive(0);
  flow.send(0);
  traffic().finish();

  // A receive without the mark is not done before its send, regardless of the previous receive.
  const Flow::Ticket plain = flow.receive(0);
  traffic().steps(64);
  expect(!traffic().done(plain), fmt::format("rank {}: test wrote *done = 1 for a receive before its send, posted "
                                             "without the mark of optional completion, expected 0",
                                             flow.receiver().name()));
  flow.send(0);
  flow.finish();

  // Receives with and without the mark alternate. The content of one without the mark is compared as soon as it is
  // done.
  stream(flow.send_comm(), flow.recv_comm(),
         {.count = 2000, .seed = random()(), .sizes = {8, 64, 4096, 20000}, .window = 8, .request = Preset::kMarker});
}

RULE_ON(
    MessageRule, XF_30, Must, ApiRange::all(),  //
    .title = "a stalled connection does not block others",
    .text =
        "A connection that is full, or whose peer is silent, does not block other connections of the same device and "
        "thread.",
    .source = "proxy.cc: progressOps serves one connection after the other",
    .why = "One thread serves all connections in turn. A slow peer must not slow down the others.",
    .check = "Fills one connection whose peer posts nothing and one whose peer sends nothing, then streams on a third.",
    .blind = "Slowness that is not a stop: the rule does not measure time.",
    .faults = {{"autoscriptlabs/nccl-mesh-plugin#20", "test looped in mid-message and starved other channels"},
               {"NVIDIA/nccl#2334", "a completion arrived for an unused slot under load"}}) {
  constexpr std::size_t kOperations = 8, kSize = 100000, kLarge = 16 << 20;
  Endpoint endpoint = sender(), peer = receiver(), another = another_far_endpoint();
  Flow without_receives = make_flow(kOperations, kSize), without_sends = make_flow(kOperations, kSize);
  Flow halfway = make_flow(endpoint, peer, 1, kLarge), busy = make_flow(endpoint, another, 4, 50000);
  for (std::size_t i = 0; i < kOperations; ++i) {
    without_receives.send(i);
    without_sends.receive(i);
  }
  // The peer stops in the middle of a message. Meanwhile the rank sends to another process.
  halfway.receive(0);
  halfway.send(0);
  traffic().steps(6);
  for (Flow* flow : {&without_receives, &without_sends, &halfway}) traffic().pause(flow->recv_comm());
  peer.rank.freeze();
  for (int round = 0; round < 40; ++round) {
    Flow::Ticket last = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      last = busy.receive(i);
      busy.send(i);
    }
    traffic().until_done(last);
  }
  peer.rank.thaw();
  for (Flow* flow : {&without_receives, &without_sends, &halfway}) traffic().resume(flow->recv_comm());
  for (std::size_t i = 0; i < kOperations; ++i) {
    without_receives.receive(i);
    without_sends.send(i);
  }
  traffic().finish();
  for (Flow* flow : {&without_receives, &without_sends, &halfway, &busy}) flow->check();
}

RULE_ON(MessageRule, XF_31, Must, ApiRange::all(),  //
        .title = "messages flow in both directions at once",
        .text = "Two ranks send large messages to each other at the same time, with one thread per rank.",
        .source = "proxy.cc: one progress thread sends and receives",
        .why =
            "Both directions share one progress thread. A plugin that finishes one before the other deadlocks when "
            "both peers send.",
        .check = "Sends six messages of 2 MiB in each direction at the same time.",
        .blind = "Rings of three and more ranks.",
        .faults = {{"autoscriptlabs/nccl-mesh-plugin#19", "all ranks of a ring waited in isend"}}) {
  constexpr std::size_t kMessages = 6, kSize = 2 << 20;
  Flow out = make_flow(sender(), receiver(), kMessages, kSize),
       back = make_flow(receiver(), sender(), kMessages, kSize);
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (Flow* flow : {&out, &back}) flow->send(i);
    for (Flow* flow : {&out, &back}) flow->receive(i);
  }
  out.finish();
  back.check();
}

namespace {

// Connections whose socket buffers are full.
class FullSockets : public MessageRule {
 protected:
  void connect(Endpoint& from, const Endpoint& to) {
    constexpr std::size_t kConnections = 4;
    ranks_.push_back(from.rank.pid());
    for (RegisteredConnection& stream : connect_registered(from, to, kConnections, kMemory)) {
      channels_.push_back({to.rank, std::move(stream), random()()});
      from.rank.fill(channels_.back().stream.from.memory, channels_.back().seed);
    }
  }

  // Sends until the plugin completes no more sends, while no rank receives. The connections are filled one after the
  // other: Linux appends what one thread writes to one socket to the last packet, which ends at any byte. If the
  // thread writes to other sockets in between, each write is a separate fragment, and the packet ends after 17 of
  // them.
  void fill() {
    for (Channel& channel : channels_) {
      // The first connection shows how many small messages, with headers of about 8 bytes, a connection holds. In other
      // connections large messages take half of the space, which saves calls.
      const std::size_t large_bytes = 5 * channels_.front().sizes.size();
      until_idle(false, [&] {
        if (!channel.sends.empty() && !traffic().posted(channel.sends.back())) return;
        // These messages are hardly larger than their headers, so that a buffer probably becomes full within a header.
        const std::size_t size = channel.bytes < large_bytes ? kLarge : random_between(1, 3);
        if (channel.bytes + size > kMemory) return;
        channel.sizes.push_back(size);
        channel.sends.push_back(traffic().send(channel.stream.send, channel.stream.from.buffer(channel.bytes, size)));
        channel.bytes += size;
      });
      traffic().pause(channel.stream.send);
    }
  }

  // Receives the buffered messages. No sender calls the plugin.
  void drain() {
    for (Channel& channel : channels_) {
      std::size_t offset = 0;
      for (const std::size_t size : channel.sizes) {
        traffic().receive(channel.stream.receive, channel.stream.to.buffer(offset, size));
        offset += size;
      }
    }
    until_idle(true, [] {});
  }

  // Lets the senders make calls too, and compares all bytes.
  void finish() {
    for (Channel& channel : channels_) traffic().resume(channel.stream.send);
    traffic().finish();
    for (Channel& channel : channels_) {
      require_content(channel.receiver, channel.stream.to.slice(0, channel.bytes), channel.seed,
                      fmt::format("one of {}", counted(channel.sizes.size(), "message")));
    }
  }

 private:
  static constexpr std::size_t kLarge = 500, kMemory = 16384;
  struct Channel {
    Rank receiver;
    RegisteredConnection stream;
    std::uint64_t seed;
    std::vector<std::size_t> sizes = {};
    std::vector<Flow::Ticket> sends = {};
    std::size_t bytes = 0;
  };

  // Calls `add` and drives the traffic until no operation makes progress and no data is in transit between the
  // sockets. `space_comes`: data in a socket that waits for space at the peer counts as in transit.
  template <typename Add>
  void until_idle(bool space_comes, Add add) {
    constexpr int kRounds = 16;  // a thread of the plugin may make progress during these rounds
    StallLimit limit = stall_limit().times(0.3);
    for (int idle = 0; idle < kRounds && !limit.expired();) {
      add();
      if (traffic().step()) {
        limit.restart();
        idle = 0;
      } else if (idle > 0 ||
                 std::none_of(ranks_.begin(), ranks_.end(), [&](pid_t rank) { return tcp_sends(rank, space_comes); })) {
        ++idle;
      }
    }
  }

  std::vector<pid_t> ranks_;
  std::vector<Channel> channels_;
};

}  // namespace

RULE_ON(
    FullSockets, XF_43, Must, ApiRange::all(),  //
    .title = "messages survive small socket buffers",
    .text =
        "A call on a stream socket may write or read any number of bytes, also only a part of a header. The plugin "
        "does not wait for the rest: its function returns, and a later call continues.",
    .source = "Linux: tcp(7), SO_SNDBUF and tcp_wmem; hosts that limit the memory of sockets",
    .why =
        "When two ranks send to each other, both buffers can become full in the middle of a header. If each rank "
        "completes its header before it reads, both hang.",
    .check =
        "Limits the TCP buffers of both hosts to 16 KiB for sending and 3 KiB for receiving and connects four times in "
        "both directions. Sends messages of 1 to 3 bytes on one connection after the other until its buffers are full, "
        "while nobody receives; receives them while nobody sends; then does both until all have arrived.",
    .blind = "Plugins that use TCP only to connect: their messages pass through no socket buffer.") {
  require_injector();  // prevents other rules from using the hosts meanwhile
  Endpoint near = near_endpoint({.fresh = true}), far = far_endpoint({.fresh = true});
  const SmallSocketBuffers at_near(near.rank.pid()), at_far(far.rank.pid());
  connect(near, far);
  connect(far, near);
  fill();
  drain();
  finish();
}

}  // namespace plugfest::conformance
