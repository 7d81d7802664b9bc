// TS, ER: what happens when the peer dies or the caller errs: an error code, in time, and no more than that.
#include <fmt/format.h>

#include "conformance/net/lost_peer.h"
#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Listener;
using control::Outcome;
using control::Request;

static constexpr std::string_view kKilled = "the receiver was killed";

RULE_ON(LostPeer, TS_09, Must, ApiRange::all(),  //
        .title = "a send that cannot complete ends in an error",
        .text =
            "When the transport fails an operation, the receiver being dead, test returns an error; it does not say "
            "\"not done\" for ever.",
        .source = "aws-ofi-nccl #347; NVIDIA/nccl #863") {
  connect_ranks();
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
    if (!late->ok()) return remark_on(*late, "death");
    requests.push_back(connection_->send.request(late->value));
  }
  const Outcome error = require_error(std::move(requests), kKilled);
  remark_on(error, "death");

  // After an error the registrations and the comm still go (CL-11).
  control::require_success(from_->registration.try_dereg());
  control::require_success(connection_->send.try_close());
}

RULE(ER_01, Must, ApiRange::all(),  //
     .title = "result codes are 0 to 6",
     .text = "No call returns InProgress (7) or a value that NCCL does not know, whatever went wrong.",
     .source = "checks.h: NCCLCHECK lets 7 pass as no error") {
  Endpoint end = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
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
  Endpoint end = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
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

RULE_ON(LostPeer, ER_04, Must, ApiRange::all(),  //
        .title = "the death of a peer is noticed",
        .text = "After the peer's process was killed, sends that follow end in an error from isend or test.",
        .source = "NVIDIA/nccl #992, #1777: only the user's watchdog helps otherwise") {
  connect_ranks();
  receiver_->rank.kill();
  remark_on(send_into_the_void(kKilled), "death");
}

}  // namespace plugfest::conformance
