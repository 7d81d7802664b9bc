// TS: what test says, when, and where it writes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "conformance/net/message.h"
#include "conformance/net/traffic.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/program.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Request;
using control::TestOptions;
using control::TestOutcome;

namespace {

/// A rule about one send and one receive at a time.
class OneMessage : public RuleBody {
 protected:
  void connect_one() {
    sender_ = near_endpoint();
    receiver_ = far_endpoint();
    connection_ = control::connect(*sender_, *receiver_);
    from_ = allocate(sender_->rank, connection_->send, kSize);
    to_ = allocate(receiver_->rank, connection_->receive, kSize);
  }
  void fill() {
    seed_ = random()();
    sender_->rank.fill(from_->slice(0, kSize), seed_);
  }
  void require_arrived() { require_content(receiver_->rank, to_->slice(0, kSize), seed_, "the message"); }

  static constexpr std::size_t kSize = 3000;
  std::optional<Endpoint> sender_, receiver_;
  std::optional<Connection> connection_;
  std::optional<Registered> from_, to_;
  std::uint64_t seed_ = 0;
};

}  // namespace

RULE_ON(OneMessage, TS_01, Must, ApiRange::all(),  //
        .title = "test writes *done on every Success",
        .text = "*done is 0 or 1 after every test that returns Success, whatever it held before.",
        .source = "transport/net.cc: the variable is uninitialised, and preset to 1 in the flush phase") {
  connect_one();
  // NCCL tests what it just posted; what *done held before must not show.
  for (const int preset : {1, 0x5a5a5a5a, 0, -1}) {
    fill();
    control::Receive receive(connection_->receive, to_->buffer(), 0, {}, {.done = preset});
    control::Send send(connection_->send, from_->buffer(), 0, {}, {.done = preset});
    expect(receive.post(), fmt::format("rank {}: irecv was deferred with nothing else posted", receiver_->rank.name()));
    for (int attempt = 0; attempt < 16; ++attempt) {
      const TestOutcome outcome = receive.request().try_test({.done = preset});
      control::require_success(outcome);
      expect(outcome.done == 0, fmt::format("{}: *done is {:#x} after Success, expected 0: nothing was sent yet "
                                            "(*done held {:#x} before)",
                                            outcome.call, outcome.done, preset));
    }
    control::finish({&receive, &send});  // a *done that is neither 0 nor 1 ends the rule
    require_arrived();
  }
}

RULE_ON(OneMessage, TS_03, Must, ApiRange::all(),  //
        .title = "test takes NULL for sizes",
        .text = "sizes may be NULL: for flush requests, and for sends by older NCCL. [S]: for receives too.",
        .source = "transport/net.cc: third phase of recvProxyProgress; NCCL 2.19 and older for sends") {
  connect_one();
  fill();
  control::Send send(connection_->send, from_->buffer(), 0, {}, {.sizes = false});
  control::Receive receive(connection_->receive, to_->buffer(), 0, {}, {.sizes = false});
  control::finish({&receive, &send});
  require_arrived();

  // Flush of host memory may be refused, or have nothing to wait for.
  const control::PointerOutcome flush = connection_->receive.try_iflush({{to_->buffer(), 0}});
  if (!flush.ok() || flush.value == 0) return;
  connection_->receive.request(flush.value).wait({.done = 1, .sizes = false});
  require_arrived();
}

RULE_ON(OneMessage, TS_04, Must, ApiRange::all(),  //
        .title = "test writes the sizes it owns and no others",
        .text =
            "When done, sizes[0] of a send is what was sent or untouched, and a receive writes exactly its n "
            "entries. Nothing else is ever written.",
        .source = "transport/net.cc: sizes[NCCL_PROXY_MAX_SUBS], summed to decide about the flush") {
  connect_one();
  for (const int fill_value : {-77, 0, 0x12345678}) {
    fill();
    const TestOptions options{.size_fill = fill_value};
    control::Receive receive(connection_->receive, to_->buffer(), 0, {}, options);
    control::Send send(connection_->send, from_->buffer(), 0, {}, options);
    for (int attempt = 0; attempt < 16; ++attempt) receive.turn();
    control::finish({&receive, &send});
    require_size(receiver_->rank.name(), receive.size(), kSize, "a receive");
    const int sent = send.size();
    expect(sent == fill_value || sent == static_cast<int>(kSize),
           fmt::format("rank {}: test of a send of {} bytes wrote sizes[0] = {}", sender_->rank.name(), kSize, sent));
    for (std::size_t i = 1; i < 64; ++i) {
      expect(receive.size(i) == fill_value, fmt::format("rank {}: test of a receive of one buffer wrote sizes[{}] = {}",
                                                        receiver_->rank.name(), i, receive.size(i)));
      expect(send.request().size(i) == fill_value, fmt::format("rank {}: test of a send wrote sizes[{}] = {}",
                                                               sender_->rank.name(), i, send.request().size(i)));
    }
    require_arrived();
  }
}

RULE(TS_06, Must, ApiRange::all(),  //
     .title = "testing the oldest request alone makes progress",
     .text = "With several requests out, testing only the oldest of a comm completes it; no other call is needed.",
     .source = "transport/net.cc: sendProxyProgress and recvProxyProgress test the oldest step") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  control::stream(connection.send, connection.receive,
                  {.count = 400, .seed = random()(), .sizes = {1, 4096, 65536, 262144}, .window = 8});

  // The whole window first, and from then on nothing but tests of the oldest.
  constexpr std::size_t kWindow = 8, kSize = 20000;
  Registered from = allocate(sender.rank, connection.send, kWindow * kSize);
  Registered to = allocate(receiver.rank, connection.receive, kWindow * kSize);
  const std::uint64_t seed = random()();
  Traffic traffic(stall_timeout(), kWindow);
  Traffic::Ticket last = 0;
  for (std::size_t i = 0; i < kWindow; ++i) {
    sender.rank.fill(from.slice(i * kSize, kSize), seed + i);
    last = traffic.receive(connection.receive, to.buffer(i * kSize, kSize));
  }
  traffic.until_posted(last);
  for (std::size_t i = 0; i < kWindow; ++i) traffic.send(connection.send, from.buffer(i * kSize, kSize));
  traffic.finish();
  for (std::size_t i = 0; i < kWindow; ++i) {
    require_content(receiver.rank, to.slice(i * kSize, kSize), seed + i, fmt::format("message {}", i));
  }
}

RULE_ON(OneMessage, TS_02, Must, ApiRange::all(),  //
        .title = "test never waits",
        .text = "While an operation is not done, test returns Success with *done 0 and comes back at once.",
        .source = "proxy.cc: one thread tests all requests of a GPU") {
  connect_one();
  fill();
  control::Receive receive(connection_->receive, to_->buffer());
  expect(receive.post(), fmt::format("rank {}: irecv was deferred with nothing else posted", receiver_->rank.name()));
  // The peer stands still: a test that waits for it is a timeout.
  sender_->rank.freeze();
  for (int attempt = 0; attempt < 200; ++attempt) {
    expect(!receive.turn(),
           fmt::format("rank {}: test said done for a receive that nothing was sent to", receiver_->rank.name()));
  }
  sender_->rank.thaw();
  control::Send send(connection_->send, from_->buffer());
  control::finish({&receive, &send});
  require_arrived();
}

RULE(TS_05, Must, ApiRange::all(),  //
     .title = "a request is one operation's until it is done",
     .text = "Requests that are out differ from one another; a pointer comes again only after its done.",
     .source = "transport/net.cc tells operations apart by their request") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kWindow = 8, kSize = 3000;
  Registered from = allocate(sender.rank, connection.send, kWindow * kSize);
  Registered to = allocate(receiver.rank, connection.receive, kWindow * kSize);
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t seed = random()();
    Traffic traffic(stall_timeout());
    std::map<std::uint64_t, std::size_t> out;
    for (std::size_t i = 0; i < kWindow; ++i) {
      sender.rank.fill(from.slice(i * kSize, kSize), seed + i);
      const Request request = connection.receive.irecv(to.buffer(i * kSize, kSize));
      if (!request) {
        traffic.receive(connection.receive, to.buffer(i * kSize, kSize));
        continue;
      }
      const auto [owner, is_new] = out.emplace(request.value(), i);
      expect(is_new, fmt::format("rank {}: receives {} and {} are both out and have the same request {:#x}",
                                 receiver.rank.name(), owner->second, i, request.value()));
      traffic.posted_receive(connection.receive, request);
    }
    for (std::size_t i = 0; i < kWindow; ++i) traffic.send(connection.send, from.buffer(i * kSize, kSize));
    traffic.finish();
    for (std::size_t i = 0; i < kWindow; ++i) {
      require_content(receiver.rank, to.slice(i * kSize, kSize), seed + i, fmt::format("message {}", i));
    }
  }
}

RULE(TS_07, Must, ApiRange::all(),  //
     .title = "testing one connection loses nothing of another",
     .text = "Tests of requests of one comm may reap completions of another, which must then be found there.",
     .source = "plugins share completion queues among comms") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kWindow = 6, kSize = 4000, kStreams = 2;
  std::vector<Connection> streams;
  std::vector<Registered> from, to;
  const std::uint64_t seed = random()();
  Traffic traffic(stall_timeout());
  std::vector<Traffic::Ticket> last_receive(kStreams);
  for (std::size_t s = 0; s < kStreams; ++s) {
    streams.push_back(control::connect(sender, receiver));
    from.push_back(allocate(sender.rank, streams[s].send, kWindow * kSize));
    to.push_back(allocate(receiver.rank, streams[s].receive, kWindow * kSize));
    for (std::size_t i = 0; i < kWindow; ++i) {
      sender.rank.fill(from[s].slice(i * kSize, kSize), seed + s * kWindow + i);
      last_receive[s] = traffic.receive(streams[s].receive, to[s].buffer(i * kSize, kSize));
    }
  }
  for (const Traffic::Ticket ticket : last_receive) traffic.until_posted(ticket);
  for (std::size_t i = 0; i < kWindow; ++i) {
    for (std::size_t s = 0; s < kStreams; ++s) traffic.send(streams[s].send, from[s].buffer(i * kSize, kSize));
  }
  // The receives of the second connection are not looked at until all of the first are done, and then some.
  traffic.pause(streams[1].receive);
  traffic.until_done(last_receive[0]);
  for (int i = 0; i < 64; ++i) traffic.step();
  traffic.resume(streams[1].receive);
  traffic.finish();
  for (std::size_t s = 0; s < kStreams; ++s) {
    for (std::size_t i = 0; i < kWindow; ++i) {
      require_content(receiver.rank, to[s].slice(i * kSize, kSize), seed + s * kWindow + i,
                      fmt::format("message {} of connection {}", i, s));
    }
  }
}

RULE(FL_07, Must, ApiRange::all(),  //
     .title = "irecvConsumed takes requests that are over",
     .text =
         "If it is there, irecvConsumed is called for every receive that was done, with its old request and the count "
         "of the newest receive, while newer ones are in flight and may have the same pointer.",
     .source = "transport/net.cc: fourth phase of recvProxyProgress, recvRequestsCache") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  if (!receiver.rank.has_function("irecvConsumed")) not_applicable("irecvConsumed is NULL");
  Connection connection = control::connect(sender, receiver);
  const int group = std::clamp(receiver.rank.properties(receiver.device).max_recvs, 1, 4);
  constexpr std::size_t kSize = 3000, kRounds = 8;
  Registered from = allocate(sender.rank, connection.send, kSize);
  Registered to = allocate(receiver.rank, connection.receive, 2 * kSize * static_cast<std::size_t>(group));
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::uint64_t seed = random()();
    sender.rank.fill(from.memory, seed);
    Traffic traffic(stall_timeout());
    const Request old = connection.receive.irecv(to.buffer(0, kSize));
    expect(static_cast<bool>(old), fmt::format("rank {}: irecv was deferred", receiver.rank.name()));
    const Traffic::Ticket first = traffic.posted_receive(connection.receive, old);
    traffic.send(connection.send, from.buffer());
    traffic.until_done(first);

    // A newer receive, of another width, is out while the old one is given back.
    std::vector<control::Part> parts;
    const int width = round % 2 == 0 ? 1 : group;
    for (int i = 0; i < width; ++i) parts.push_back({to.buffer((1 + static_cast<std::size_t>(i)) * kSize, kSize), i});
    const Traffic::Ticket newer = traffic.receive(connection.receive, parts);
    traffic.until_posted(newer);
    control::require_success(connection.receive.try_consumed(width, old.value()));
    for (int i = 0; i < width; ++i) traffic.send(connection.send, from.buffer(), i);
    traffic.finish();
    for (int i = 0; i < width; ++i) {
      require_content(receiver.rank, to.slice((1 + static_cast<std::size_t>(i)) * kSize, kSize), seed,
                      "a message received beside irecvConsumed");
    }
  }
}

}  // namespace plugfest::conformance
