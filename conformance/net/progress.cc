// XF rules: calls that must not wait, and progress of transfers whose peer is slow, idle or stopped.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

RULE_ON(
    MessageRule, XF_03, Must, ApiRange::all(),  //
    .title = "isend and irecv never wait",
    .text = "Neither call waits for the peer, for space in a socket buffer or for another thread.",
    .source = "proxy.cc: one thread drives all connections of a GPU",
    .why =
        "One thread drives all connections of a GPU. A call that waits stops them all, and two ranks that wait for "
        "each other hang.",
    .check =
        "Sends 16 MiB, or 4 MiB if NCCL passes only its own buffers, in both directions while the receiving process "
        "is stopped, before and after it has posted its receive.",
    .blind =
        "Waits of less than the time limit of a call, and locks that are held for long only if threads compete for "
        "them.",
    .faults = {{"autoscriptlabs/nccl-mesh-plugin#19",
                "isend waited for room in the socket buffer, and rings of three ranks hung"},
               {"autoscriptlabs/nccl-mesh-plugin#14",
                "isend waited until a large message was written, and two ranks that sent to each other hung"}},
    .alone = true) {
  Endpoint left = sender(), right = receiver();
  const std::size_t size = usual_size(16 << 20);
  Flow out = make_flow(left, right, 1, size), back = make_flow(right, left, 1, size);
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

  // Sends again to the stopped rank, which has posted a receive before, since a plugin may defer sends until then.
  out.receive(0);
  traffic().post_receives();
  traffic().pause(out.recv_comm());
  send_to_stopped(out, right.rank);
  traffic().resume(out.recv_comm());
  out.finish();
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
               {"NVIDIA/nccl#2334", "a completion arrived for an unused slot under load"}},
    .alone = true) {
  constexpr std::size_t kOperations = 8, kSize = 100000;
  // With the usual NCCL_IB_TIMEOUT, 14, queue pairs give up after 2 s, and the mesh plugin's after 8 s. On a loaded
  // machine, the peer may be stopped for longer.
  const RankOptions patient = {.environment = {{"NCCL_IB_TIMEOUT", "20"}, {"NCCL_MESH_TIMEOUT", "20"}}};
  Endpoint endpoint = near_endpoint(patient), peer = far_endpoint(patient), another = another_far_endpoint();
  Flow without_receives = make_flow(endpoint, peer, kOperations, kSize);
  Flow without_sends = make_flow(endpoint, peer, kOperations, kSize);
  Flow halfway = make_flow(endpoint, peer, 1, usual_size(16 << 20)), busy = make_flow(endpoint, another, 4, 50000);
  for (std::size_t i = 0; i < kOperations; ++i) {
    without_receives.send(i);
    without_sends.receive(i);
  }
  // The peer stops in the middle of a message. Meanwhile the rank sends to another process.
  halfway.receive(0);
  halfway.send(0);
  traffic().steps(6);
  for (Flow* flow : {&without_receives, &without_sends, &halfway}) traffic().pause(flow->recv_comm());
  const auto stream_to_another = [&] {
    Flow::Ticket last = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      last = busy.receive(i);
      busy.send(i);
    }
    traffic().until_done(last);
  };
  // The processes of a host share the NIC's UDP port. When ranks of other rules have ended, packets may first reach
  // another process, which passes them on; a stopped one cannot.
  be_alone();
  for (int round = 0; round < 2; ++round) stream_to_another();
  peer.rank.freeze();
  const Stopwatch frozen;
  for (int round = 0; round < 40 && (round == 0 || frozen.seconds() < 0.5); ++round) stream_to_another();
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
        .faults = {{"autoscriptlabs/nccl-mesh-plugin#19", "all ranks of a ring waited in isend"}},
        .starts_first = true) {
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

RULE_ON(MessageRule, XF_34, Should, ApiRange::all(),  //
        .title = "a comm works after a minute without calls",
        .text = "Comms on which no call was made for a minute send and receive as before.",
        .source = "applications that compute between collectives; NAT tables and keep-alive timers of networks",
        .why = "If an idle comm fails, the first collective after a pause fails.",
        .check = "Exchanges messages in both directions, makes no call for 60 s, and exchanges others.",
        .blind = "Timers of more than a minute.", .thorough = true) {
  Flow out = make_flow(2, 3000), back = make_flow(receiver(), sender(), 2, 3000);
  out.exchange(0);
  back.exchange(0);
  std::this_thread::sleep_for(std::chrono::seconds(60));
  out.exchange(1);
  back.exchange(1);
}

RULE_ON(
    MessageRule, XF_36, Should, ApiRange::all(),  //
    .title = "signals do not disturb transfers",
    .text =
        "Signals of the application, and stopping and continuing a process, cause no error and lose no bytes: "
        "interrupted system calls are repeated.",
    .source =
        "signal(7): calls return EINTR after a handler without SA_RESTART; epoll_wait and others after SIGCONT, too",
    .why = "A profiler's timer, a debugger or a job scheduler that stops the process ends the communicator.",
    .check =
        "Stops and continues each of the two processes four times or more while they stream messages. Then connects "
        "and streams between processes in which each thread gets a signal every millisecond.",
    .blind = "System calls that the plugin makes only under load.", .alone = true) {
  const Connection connection = connect(sender(), receiver());
  int stops = 0;
  during_streams(connection, random(), 8, [&] {
    Rank rank = stops++ % 2 == 0 ? sender().rank : receiver().rank;
    rank.freeze();
    rank.thaw();
  });
  const RankOptions interrupted = {.environment = {{"PLUGFEST_RANK_SIGNALS", "1"}}};
  const auto stream_between_interrupted = [&] {
    const Endpoint from = near_endpoint(interrupted), to = far_endpoint(interrupted);
    const Connection another = connect(from, to);
    stream(another.send, another.receive, {.count = 5'000, .seed = random()(), .sizes = {64, 4096, 20'000}});
  };
  probe(stream_between_interrupted, [] { return "each thread gets a signal every millisecond"; });
}

RULE_ON(
    MessageRule, XF_38, Must, ApiRange::all(),  //
    .title = "messages to an idle receiver are kept",
    .text =
        "Sends that complete before the receiver makes a call are kept, however many. A plugin may defer them instead.",
    .source = "transport/net.cc: sender and receiver proceed independently",
    .why = "If the plugin drops such messages, the receiver waits forever.",
    .check =
        "Posts 400 sends of 200 bytes, as many as the plugin takes, before any receive of them; then receives all and "
        "compares every byte.",
    .faults = {{"aws/aws-ofi-nccl#640", "eager messages outran the receiver's buffers"},
               {"aws/aws-ofi-nccl#664", "the same, on another provider"}}) {
  constexpr std::size_t kMessages = 400, kSize = 200;
  Flow flow = make_flow(kMessages, kSize);
  flow.exchange(0);
  for (std::size_t i = 0; i < kMessages; ++i) flow.send(i);
  traffic().post(flow.send_comm());
  for (std::size_t i = 0; i < kMessages; ++i) flow.receive(i);
  flow.finish();
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
        "A call on a stream socket may write or read any number of bytes, even only a part of a header. The plugin "
        "does not wait for the rest: its function returns, and a later call continues.",
    .source = "Linux: tcp(7), SO_SNDBUF and tcp_wmem; hosts that limit the memory of sockets",
    .why =
        "When two ranks send to each other, both buffers can become full in the middle of a header. If each rank "
        "completes its header before it reads, both hang.",
    .check =
        "Limits the TCP buffers of both hosts to 16 KiB for sending and 3 KiB for receiving and connects four times in "
        "both directions. Sends messages of 1 to 3 bytes on one connection after the other until its buffers are full, "
        "while nobody receives; receives them while nobody sends; then does both until all have arrived.",
    .blind = "Plugins that use TCP only to connect: their messages do not use socket buffers.", .alone = true) {
  require_injector();  // prevents other rules from using the hosts at the same time
  Endpoint near = near_endpoint({.fresh = true}), far = far_endpoint({.fresh = true});
  const SmallSocketBuffers at_near(near.rank.pid()), at_far(far.rank.pid());
  connect(near, far);
  connect(far, near);
  fill();
  drain();
  finish();
}

}  // namespace plugfest::conformance
