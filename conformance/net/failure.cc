// TS, ER: what happens when the peer dies or the caller errs: an error code, in time, and no more than that.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {
namespace {

using control::Connection;
using control::End;
using control::Listener;
using control::Outcome;
using control::Request;

/// A rule whose peer dies while sends are on their way.
class PeerDeath : public RuleBody {
 protected:
  static constexpr std::size_t kMessages = 4, kSize = 4 << 20;

  /// Connects; the receiver, which will be killed, has posted its receives.
  void connect_mortal() {
    sender_ = near({.fresh = true});
    receiver_ = far({.fresh = true});
    connection_ = control::connect(*sender_, *receiver_);
    from_ = allocate(sender_->rank, connection_->send, kMessages * kSize);
    to_ = allocate(receiver_->rank, connection_->receive, kMessages * kSize);
    for (std::size_t i = 0; i < kMessages; ++i) {
      control::Receive receive(connection_->receive, to_->buffer(i * kSize, kSize));
      expect(receive.post(), fmt::format("rank {}: receive {} was deferred", receiver_->rank.name(), i));
    }
  }

  /// Isends until the plugin takes one, or answers with an error; nothing when it does neither for long.
  std::optional<control::PointerOutcome> post_send(std::size_t index) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < death_notice()) {
      control::PointerOutcome outcome = connection_->send.try_isend(from_->buffer(index * kSize, kSize));
      if (!outcome.ok() || outcome.value != 0) return outcome;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::nullopt;
  }

  /// Requires that a test of one of `requests`, oldest first, returns an error in the end.
  Outcome require_error(std::vector<Request> requests) {
    const auto start = std::chrono::steady_clock::now();
    for (Request& request : requests) {
      for (;;) {
        const control::TestOutcome outcome = request.try_test();
        if (!outcome.ok()) return outcome;
        if (outcome.done == 1) break;
        expect(std::chrono::steady_clock::now() - start < death_notice(),
               fmt::format("rank {}: test says not done although the receiver was killed {} s ago, expected an error",
                           sender_->rank.name(), death_notice().count()));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    broken(fmt::format(
        "rank {}: {} sends of {} bytes were done although the receiver was killed before it could take them",
        sender_->rank.name(), requests.size(), kSize));
  }

  /// A code that peers' deaths are expected to give; others are worth a remark.
  void remark_on(const Outcome& outcome) {
    observe(fmt::format("the death of the peer gave {}", control::result_name(outcome.code)));
    should(outcome.code == control::kSystemError || outcome.code == control::kRemoteError,
           fmt::format("{} returned {} after the peer's death, expected SystemError or RemoteError", outcome.call,
                       control::result_name(outcome.code)));
  }

  /// Transports notice by their own timers: longer than a call may take.
  std::chrono::duration<double> death_notice() const { return 3 * patience(); }

  std::optional<End> sender_, receiver_;
  std::optional<Connection> connection_;
  std::optional<Registered> from_, to_;
};

void require_known(const Outcome& outcome) {
  if (outcome.code >= control::kSuccess && outcome.code <= control::kRemoteError) return;
  throw Broken(fmt::format("{} returned {}, expected 0 to 6", outcome.call, control::result_name(outcome.code)));
}

}  // namespace

RULE_ON(PeerDeath, TS_09, Must, ApiRange::all(),  //
        .title = "a send that cannot complete ends in an error",
        .text =
            "When the transport fails an operation, the receiver being dead, test returns an error; it does not say "
            "\"not done\" for ever.",
        .source = "aws-ofi-nccl #347; NVIDIA/nccl #863") {
  connect_mortal();
  receiver_->rank.freeze();  // what is sent from here on is on its way when the receiver dies
  std::vector<Request> requests;
  for (std::size_t i = 0; i < kMessages; ++i) {
    const control::PointerOutcome sent = connection_->send.try_isend(from_->buffer(i * kSize, kSize));
    if (!sent.ok() || sent.value == 0) break;
    requests.push_back(connection_->send.request(sent.value));
  }
  receiver_->rank.kill();
  if (requests.empty()) {
    const auto late = post_send(0);
    expect(late.has_value(),
           fmt::format("rank {}: isend says \"not now\" although the receiver is dead", sender_->rank.name()));
    if (!late->ok()) return remark_on(*late);
    requests.push_back(connection_->send.request(late->value));
  }
  const Outcome error = require_error(std::move(requests));
  remark_on(error);

  // After an error the registrations and the comm still go (CL-11).
  control::require_success(from_->registration.try_dereg());
  control::require_success(connection_->send.try_close());
}

RULE(ER_01, Must, ApiRange::all(),  //
     .title = "result codes are 0 to 6",
     .text = "No call returns InProgress (7) or a value that NCCL does not know, whatever went wrong.",
     .source = "checks.h: NCCLCHECK lets 7 pass as no error") {
  End end = near({.fresh = true}), peer = far({.fresh = true});
  Connection connection = control::connect(end, peer);
  control::Memory memory = end.rank.allocate(4096);

  // Memory of kinds that nobody has.
  for (const int type : {0, 8, 64}) {
    const control::PointerOutcome outcome = connection.send.try_reg(memory, type);
    require_known(outcome);
    if (outcome.ok()) connection.send.try_dereg(outcome.value);
  }
  // A peer that dies while it is connected to, and one that is sent to.
  Listener listener = peer.rank.listen(peer.device);
  control::Registration registration = connection.send.reg(memory);
  peer.rank.kill();
  control::Connect connect = end.rank.connect(end.device, listener.handle());
  for (int i = 0; i < 2 && !connect.done(); ++i) {  // few: a refused connect may wait for seconds before it tries again
    const control::PointerOutcome outcome = connect.try_poll();
    require_known(outcome);
    if (!outcome.ok()) break;
  }
  for (int i = 0; i < 50; ++i) {
    const control::PointerOutcome outcome = connection.send.try_isend(registration.buffer());
    require_known(outcome);
    if (!outcome.ok()) break;
    if (outcome.value == 0) continue;
    const control::TestOutcome test = connection.send.request(outcome.value).try_test();
    require_known(test);
    if (!test.ok()) break;
  }
  require_known(registration.try_dereg());
  require_known(connection.send.try_close());
}

RULE(ER_03, Must, ApiRange::all(),  //
     .title = "trouble ends in a code, never in abort or exit",
     .text = "No abort, exit, assert or exception leaves the plugin, whatever the peer and the network do.",
     .source = "one plugin calls exit inside test; NCCL must be able to abort in order") {
  End end = near({.fresh = true}), peer = far({.fresh = true});
  // The peer dies with a connection half open, with one in use in both directions, and with a listener known.
  Listener listener = peer.rank.listen(peer.device);
  Listener own = end.rank.listen(end.device);
  Connection out = control::connect(end, peer), back = control::connect(peer, end);
  control::Connect half_open = end.rank.connect(end.device, listener.handle());
  half_open.try_poll();
  control::Connect towards = peer.rank.connect(peer.device, own.handle());
  towards.try_poll();
  Registered to = allocate(end.rank, back.receive, 65536);
  Registered from = allocate(end.rank, out.send, 65536);
  control::Receive receive(back.receive, to.buffer());
  receive.post();
  peer.rank.kill();

  control::Accept accept = end.rank.accept(own);
  for (int i = 0; i < 50; ++i) {
    if (i < 2 && !half_open.done()) half_open.try_poll();  // few: a refused connect may wait for seconds
    if (!accept.done()) accept.try_poll();
    if (receive.request()) receive.request().try_test();
    const control::PointerOutcome sent = out.send.try_isend(from.buffer());
    if (!sent.ok()) break;
    if (sent.value == 0) continue;
    if (!out.send.request(sent.value).try_test().ok()) break;
  }
  to.registration.try_dereg();
  from.registration.try_dereg();
  back.receive.try_close();
  out.send.try_close();
  own.try_close();
  control::require_success(end.rank.try_devices());
}

RULE_ON(PeerDeath, ER_04, Must, ApiRange::all(),  //
        .title = "the death of a peer is noticed",
        .text = "After the peer's process was killed, sends that follow end in an error from isend or test.",
        .source = "NVIDIA/nccl #992, #1777: only the user's watchdog helps otherwise") {
  connect_mortal();
  receiver_->rank.kill();
  std::vector<Request> requests;
  for (std::size_t i = 0; i < kMessages; ++i) {
    const auto sent = post_send(i);
    if (!sent) break;
    if (!sent->ok()) return remark_on(*sent);
    requests.push_back(connection_->send.request(sent->value));
  }
  expect(!requests.empty(), fmt::format("rank {}: isend says \"not now\" although the receiver was killed {} s ago",
                                        sender_->rank.name(), death_notice().count()));
  remark_on(require_error(std::move(requests)));
}

}  // namespace plugfest::conformance
