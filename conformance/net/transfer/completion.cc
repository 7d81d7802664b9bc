// TS and FL rules: results of test, progress, and irecvConsumed.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "conformance/net/script/message.h"
#include "conformance/net/script/traffic.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/deviation.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Request;
using control::TestOptions;
using control::TestOutcome;

namespace {

/// Base of rules about one message at a time on one connection.
class OneMessage : public RuleBody {
 protected:
  void connect_one() {
    sender_ = near_endpoint();
    receiver_ = far_endpoint();
    connection_ = connect_and_deliver(*sender_, *receiver_, random()());
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
        .source = "transport/net.cc: the variable is uninitialised, and 1 in the flush phase") {
  connect_one();
  // *done must not keep a value from before the call.
  for (const int preset : {1, 0x5a5a5a5a, 0, -1}) {
    fill();
    const Request receive = post_ahead(connection_->receive, *to_, kSize, 1).front();
    for (int attempt = 0; attempt < 16; ++attempt) {
      const TestOutcome outcome = receive.try_test({.done = preset});
      control::require_success(outcome);
      expect(outcome.done == 0, fmt::format("{}: *done is {:#x} after Success, expected 0 before the send (*done was "
                                            "{:#x} before the call)",
                                            outcome.call, outcome.done, preset));
    }
    Traffic traffic(stall_limit());
    traffic.test_with({.done = preset});  // a *done that is neither 0 nor 1 ends the rule
    traffic.posted_receive(connection_->receive, receive);
    traffic.send(connection_->send, from_->buffer());
    traffic.finish();
    require_arrived();
  }
}

RULE_ON(OneMessage, TS_03, Must, ApiRange::all(),  //
        .title = "test accepts NULL for sizes",
        .text = "sizes may be NULL for flush requests, and for sends by older NCCL. [S]: also for receives.",
        .source = "transport/net.cc: third phase of recvProxyProgress; NCCL 2.19 and older for sends") {
  connect_one();
  fill();
  control::Send send(connection_->send, from_->buffer(), 0, {}, {.sizes = false});
  control::Receive receive(connection_->receive, to_->buffer());
  control::finish({&receive, &send});
  require_arrived();

  // NCCL flushes GPU memory only. A flush of host memory may be refused, or return no request.
  if (receiver_->rank.has_function("iflush")) {
    const control::PointerOutcome flush = connection_->receive.try_iflush({{to_->buffer(), 0}});
    if (flush.ok() && flush.value != 0) {
      connection_->receive.request(flush.value).wait({.done = 1, .sizes = false});
      require_arrived();
    }
  }

  // NCCL always passes an array for the sizes of a receive, so a plugin may refuse NULL.
  fill();
  control::Send next(connection_->send, from_->buffer());
  control::Receive without_sizes(connection_->receive, to_->buffer(), 0, {}, {.sizes = false});
  try {
    control::finish({&without_sizes, &next});
  } catch (const control::CallFailed& failure) {
    return should(false, failure.what());
  }
  require_arrived();
}

RULE_ON(OneMessage, TS_04, Must, ApiRange::all(),  //
        .title = "test writes only the sizes of its request",
        .text =
            "When a send is done, sizes[0] is the sent size or unwritten. When a receive is done, exactly its n "
            "entries are written. No other entry is ever written.",
        .source = "transport/net.cc: recvProxyProgress sums sizes[NCCL_PROXY_MAX_SUBS] to decide about the flush") {
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
           fmt::format("rank {}: test of a send wrote sizes[0] = {}, expected {} or no write", sender_->rank.name(),
                       sent, kSize));
    for (std::size_t i = 1; i < 64; ++i) {
      expect(receive.size(i) == fill_value,
             fmt::format("rank {}: test of a receive of one buffer wrote sizes[{}] = {}, expected no write",
                         receiver_->rank.name(), i, receive.size(i)));
      expect(send.request().size(i) == fill_value,
             fmt::format("rank {}: test of a send wrote sizes[{}] = {}, expected no write", sender_->rank.name(), i,
                         send.request().size(i)));
    }
    require_arrived();
  }
}

RULE(TS_06, Must, ApiRange::all(),  //
     .title = "testing only the oldest request makes progress",
     .text =
         "With several requests outstanding, repeated tests of the oldest request of a comm complete it. No other call "
         "is needed.",
     .source = "transport/net.cc: sendProxyProgress and recvProxyProgress test the oldest step") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  control::stream(connection.send, connection.receive,
                  {.count = 400, .seed = random()(), .sizes = {1, 4096, 65536, 262144}, .window = 8});

  // All requests are posted first. From then on only the oldest is tested, and no other call is made.
  constexpr std::size_t kRequests = 8, kSize = 20000;
  Registered from = allocate(sender.rank, connection.send, kRequests * kSize);
  Registered to = allocate(receiver.rank, connection.receive, kRequests * kSize);
  const std::uint64_t seed = random()();
  Traffic traffic(stall_limit(), kRequests);
  for (std::size_t i = 0; i < kRequests; ++i) {
    sender.rank.fill(from.slice(i * kSize, kSize), seed + i);
    traffic.receive(connection.receive, to.buffer(i * kSize, kSize));
  }
  traffic.post_receives();
  for (std::size_t i = 0; i < kRequests; ++i) traffic.send(connection.send, from.buffer(i * kSize, kSize));
  traffic.finish();
  for (std::size_t i = 0; i < kRequests; ++i) {
    require_content(receiver.rank, to.slice(i * kSize, kSize), seed + i, fmt::format("message {}", i));
  }
}

RULE_ON(OneMessage, TS_02, Must, ApiRange::all(),  //
        .title = "test never waits",
        .text = "While an operation is not done, test returns Success with *done 0 and does not wait.",
        .source = "proxy.cc: one thread tests all requests of a GPU") {
  connect_one();
  fill();
  // The peer is stopped: a test that waits for it times out. First before the send, then in the middle of a message.
  Request receive = post_ahead(connection_->receive, *to_, kSize, 1).front();
  sender_->rank.freeze();
  for (int attempt = 0; attempt < 200; ++attempt) {
    expect(!receive.test(), fmt::format("rank {}: test wrote *done = 1 for a receive before its send, expected 0",
                                        receiver_->rank.name()));
  }
  sender_->rank.thaw();
  Traffic traffic(stall_limit());
  traffic.posted_receive(connection_->receive, receive);
  traffic.send(connection_->send, from_->buffer());
  traffic.finish();
  require_arrived();

  constexpr std::size_t kLarge = 32 << 20;  // takes longer than it takes to stop a process
  Registered from = allocate(sender_->rank, connection_->send, kLarge);
  Registered to = allocate(receiver_->rank, connection_->receive, kLarge);
  auto turn = [](control::Step& step) {
    if (!step.done()) step.turn();
  };
  for (const int turns_before : {1, 4}) {
    for (const bool stop_sender : {true, false}) {
      const std::uint64_t seed = random()();
      sender_->rank.fill(from.memory, seed);
      control::Receive receiving(connection_->receive, to.buffer());
      control::Send sending(connection_->send, from.buffer());
      for (int i = 0; i < turns_before; ++i) {
        turn(receiving);
        turn(sending);
      }
      control::Rank stopped = stop_sender ? sender_->rank : receiver_->rank;
      stopped.freeze();
      for (int i = 0; i < 50; ++i) turn(stop_sender ? static_cast<control::Step&>(receiving) : sending);
      stopped.thaw();
      control::finish({&receiving, &sending});
      require_content(receiver_->rank, to.memory, seed, "a message whose endpoint was stopped in the middle");
    }
  }
}

RULE(TS_05, Must, ApiRange::all(),  //
     .title = "requests in flight are distinct",
     .text =
         "No two outstanding operations have the same request pointer. A pointer is reused only after its operation is "
         "done. [S] if maxRecvs is 1 and irecvConsumed is NULL: then NCCL uses a request only to test it.",
     .source = "transport/net.cc identifies operations by their requests") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kRequests = 8, kSize = 3000;
  Registered from = allocate(sender.rank, connection.send, kRequests * kSize);
  Registered to = allocate(receiver.rank, connection.receive, kRequests * kSize);
  const bool used_as_key =
      receiver.rank.properties(receiver.device).max_recvs > 1 || receiver.rank.has_function("irecvConsumed");
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t seed = random()();
    Traffic traffic(stall_limit());
    std::map<std::uint64_t, std::size_t> outstanding;
    bool deferred = false;
    for (std::size_t i = 0; i < kRequests; ++i) {
      sender.rank.fill(from.slice(i * kSize, kSize), seed + i);
      // Receives after a deferred one wait with it, since they must be accepted in order.
      const Request request =
          deferred ? connection.receive.request(0) : connection.receive.irecv(to.buffer(i * kSize, kSize));
      if (!request) {
        deferred = true;
        traffic.receive(connection.receive, to.buffer(i * kSize, kSize));
        continue;
      }
      const auto [owner, is_new] = outstanding.emplace(request.value(), i);
      const std::string message =
          fmt::format("rank {}: irecv #{} returned request {:#x}, which irecv #{} still uses, expected another one",
                      receiver.rank.name(), i, request.value(), owner->second);
      expect(is_new || !used_as_key, message);
      should(is_new, message);
      traffic.posted_receive(connection.receive, request);
    }
    for (std::size_t i = 0; i < kRequests; ++i) traffic.send(connection.send, from.buffer(i * kSize, kSize));
    traffic.finish();
    for (std::size_t i = 0; i < kRequests; ++i) {
      require_content(receiver.rank, to.slice(i * kSize, kSize), seed + i, fmt::format("message {}", i));
    }
  }
}

RULE(TS_07, Must, ApiRange::all(),  //
     .title = "testing one comm loses no completion of another",
     .text = "A test on one comm may collect completions of another. A later test on that comm still reports them.",
     .source = "plugins share completion queues between comms") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kRequests = 6, kSize = 4000, kStreams = 2;
  const std::vector<Stream> streams = connect_streams(sender, receiver, kStreams, kRequests * kSize);
  const std::uint64_t seed = random()();
  Traffic traffic(stall_limit());
  std::vector<Traffic::Ticket> last_receive(kStreams);
  for (std::size_t s = 0; s < kStreams; ++s) {
    for (std::size_t i = 0; i < kRequests; ++i) {
      sender.rank.fill(streams[s].from.slice(i * kSize, kSize), seed + s * kRequests + i);
      last_receive[s] = traffic.receive(streams[s].receive, streams[s].to.buffer(i * kSize, kSize));
    }
  }
  traffic.post_receives();
  for (std::size_t i = 0; i < kRequests; ++i) {
    for (const Stream& stream : streams) traffic.send(stream.send, stream.from.buffer(i * kSize, kSize));
  }
  // The receives of the second connection are not tested until all of the first are done and 64 more rounds have
  // passed.
  traffic.pause(streams[1].receive);
  traffic.until_done(last_receive[0]);
  for (int i = 0; i < 64; ++i) traffic.step();
  traffic.resume(streams[1].receive);
  traffic.finish();
  for (std::size_t s = 0; s < kStreams; ++s) {
    for (std::size_t i = 0; i < kRequests; ++i) {
      require_content(receiver.rank, streams[s].to.slice(i * kSize, kSize), seed + s * kRequests + i,
                      fmt::format("message {} of connection {}", i, s));
    }
  }
}

RULE(FL_07, Must, ApiRange::all(),  //
     .title = "irecvConsumed accepts completed requests",
     .text =
         "If irecvConsumed is not NULL, NCCL calls it for each completed receive, with the old request pointer and the "
         "buffer count of the newest receive. Newer receives are in flight then and may reuse the pointer.",
     .source = "transport/net.cc: fourth phase of recvProxyProgress, recvRequestsCache") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  if (!receiver.rank.has_function("irecvConsumed")) not_applicable("irecvConsumed is NULL");
  Connection connection = connect_and_deliver(sender, receiver, random()());
  const int group = std::clamp(receiver.rank.properties(receiver.device).max_recvs, 1, 4);
  constexpr std::size_t kSize = 3000, kRounds = 8;
  Registered from = allocate(sender.rank, connection.send, kSize);
  Registered to = allocate(receiver.rank, connection.receive, 2 * kSize * static_cast<std::size_t>(group));
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::uint64_t seed = random()();
    sender.rank.fill(from.memory, seed);
    Traffic traffic(stall_limit());
    const Request old = post_ahead(connection.receive, to, kSize, 1).front();
    const Traffic::Ticket first = traffic.posted_receive(connection.receive, old);
    traffic.send(connection.send, from.buffer());
    traffic.until_done(first);

    // A newer receive of another width is in flight during the irecvConsumed of the old one.
    std::vector<control::Part> parts;
    const int width = round % 2 == 0 ? 1 : group;
    for (int i = 0; i < width; ++i) parts.push_back({to.buffer((1 + static_cast<std::size_t>(i)) * kSize, kSize), i});
    traffic.receive(connection.receive, parts);
    traffic.post_receives();
    control::require_success(connection.receive.try_consumed(width, old.value()));
    for (int i = 0; i < width; ++i) traffic.send(connection.send, from.buffer(), i);
    traffic.finish();
    for (int i = 0; i < width; ++i) {
      require_content(receiver.rank, to.slice((1 + static_cast<std::size_t>(i)) * kSize, kSize), seed,
                      "a message received during irecvConsumed");
    }
  }
}

}  // namespace plugfest::conformance
