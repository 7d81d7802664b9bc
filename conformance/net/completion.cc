// TS: what test says, when, and where it writes.
#include <fmt/format.h>

#include "conformance/net/message.h"
#include "conformance/net/traffic.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/program.h"

namespace plugfest::conformance {

using control::Connection;
using control::End;
using control::Request;
using control::TestOptions;
using control::TestOutcome;

namespace {

/// A rule about one send and one receive at a time.
class OneMessage : public RuleBody {
 protected:
  void connect_one() {
    sender_ = near();
    receiver_ = far();
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
  std::optional<End> sender_, receiver_;
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
  End sender = near(), receiver = far();
  Connection connection = control::connect(sender, receiver);
  control::stream(connection.send, connection.receive,
                  {.count = 400, .seed = random()(), .sizes = {1, 4096, 65536, 262144}, .window = 8});

  // The whole window first, and from then on nothing but tests of the oldest.
  constexpr std::size_t kWindow = 8, kSize = 20000;
  Registered from = allocate(sender.rank, connection.send, kWindow * kSize);
  Registered to = allocate(receiver.rank, connection.receive, kWindow * kSize);
  const std::uint64_t seed = random()();
  Traffic traffic(patience(), kWindow);
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

}  // namespace plugfest::conformance
