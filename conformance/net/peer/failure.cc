// TS and ER rules: error codes after the death of a peer or an invalid call.
#include <fmt/format.h>

#include "conformance/net/peer/lost_peer.h"
#include "conformance/net/script/trial.h"
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
            "When the transport fails a send because the receiver is dead, test returns an error. It does not report "
            "\"not done\" forever.",
        .source = "aws-ofi-nccl #347; NVIDIA/nccl #863",
        .why = "NCCL ends a job only when a call returns an error. Otherwise a user's watchdog does, after minutes.",
        .check = "Stops the receiver with sends in flight, kills it, and tests until an error comes.",
        .blind = "How long the transport needs within the limit of its own retries.",
        .faults = {{"aws/aws-ofi-nccl#347", "a failed completion was not reported to NCCL"},
                   {"NVIDIA/nccl#863", "the death of a peer left the others waiting"}}) {
  connect_ranks();
  receiver_->rank.freeze();  // sends from here on are in flight when the receiver dies
  std::vector<Request> requests;
  // What the receiver sent before may still be on its way, so that isend is called again if it returns NULL.
  for (int deferred = 0; requests.size() < kMessages / 2 && deferred < 500;) {
    const control::PointerOutcome sent = connection_->send.try_isend(from_->buffer(requests.size() * kSize, kSize));
    if (!sent.ok()) break;
    if (sent.value == 0) {
      ++deferred;
    } else {
      requests.push_back(connection_->send.request(sent.value));
    }
  }
  receiver_->rank.kill();
  check_code(send_until_error(kKilled, std::move(requests)), kKilled);

  // deregMr and close still succeed after an error (CL-11).
  control::require_success(from_->registration.try_dereg());
  control::require_success(connection_->send.try_close());
}

RULE(ER_01, Must, ApiRange::all(),  //
     .title = "every result code is 0 to 6",
     .text = "No call returns ncclInProgress (7) or an undefined value, whatever failed.",
     .source = "checks.h: NCCLCHECK does not treat 7 as an error",
     .why = "NCCL's macros do not treat ncclInProgress as an error, and print undefined values as unknown errors.",
     .check =
         "Registers with invalid types, tests a receive that has no send, kills the peer during a connect and during "
         "sends. The code of each call is "
         "checked, and so is that of each call of all other rules: a rule in which a call returns another code is not "
         "judged, and this rule names it.",
     .blind = "Codes of failures that no rule causes.") {
  Endpoint endpoint = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
  Connection connection = control::connect(endpoint, peer);
  control::Memory memory = endpoint.rank.allocate(4096);

  // Pointer types that no plugin supports.
  for (const int type : {0, 8, 64}) {
    const control::PointerOutcome outcome = connection.send.try_reg(memory, type);
    if (outcome.ok()) connection.send.try_dereg(outcome.value);
  }
  // A receive without a send.
  control::Memory target = peer.rank.allocate(4096);
  control::Registration target_registration = connection.receive.reg(target);
  const control::PointerOutcome receive = connection.receive.try_irecv({{target_registration.buffer(), 0}});
  if (receive.ok() && receive.value != 0) {
    for (int i = 0; i < 4; ++i) connection.receive.request(receive.value).try_test();
  }
  // The peer dies during a connect and during sends.
  Listener listener = peer.rank.listen(peer.device);
  control::Registration registration = connection.send.reg(memory);
  peer.rank.kill();
  control::Connect connect = endpoint.rank.connect(endpoint.device, listener.handle());
  for (int i = 0; i < 2 && !connect.done(); ++i) {  // only 2: a call may retry a refused connect for seconds
    const control::PointerOutcome outcome = connect.try_poll();
    if (!outcome.ok()) break;
  }
  for (int i = 0; i < 50; ++i) {
    const control::PointerOutcome outcome = connection.send.try_isend(registration.buffer());
    if (!outcome.ok()) break;
    if (outcome.value == 0) continue;
    const control::TestOutcome test = connection.send.request(outcome.value).try_test();
    if (!test.ok()) break;
  }
  registration.try_dereg();
  connection.send.try_close();
}

RULE(ER_03, Must, ApiRange::all(),  //
     .title = "failures end in an error code, never in abort or exit",
     .text =
         "The plugin does not call abort or exit, fail an assertion or throw an exception, whatever the peer and the "
         "network do.",
     .source = "one plugin calls exit inside test; NCCL must be able to abort its communicators in order",
     .why = "An application may want to abort one communicator and go on. A plugin that calls exit decides otherwise.",
     .check =
         "Kills the peer while connections in both directions are in use and half open, goes on calling, and requires "
         "the process to live.",
     .blind = "Failures other than the death of a peer: ER-11 has those of the network.",
     .faults = {{"google/nccl-plugin-gpudirecttcpx", "test calls exit"}}) {
  Endpoint endpoint = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
  // The peer dies while two connections are in use, one per direction, and two are half open, one per direction.
  Listener listener = peer.rank.listen(peer.device);
  Listener own = endpoint.rank.listen(endpoint.device);
  Connection out = control::connect(endpoint, peer), back = control::connect(peer, endpoint);
  control::Connect half_open = endpoint.rank.connect(endpoint.device, listener.handle());
  half_open.try_poll();
  control::Connect incoming = peer.rank.connect(peer.device, own.handle());
  incoming.try_poll();
  Registered to = allocate(endpoint.rank, back.receive, 65536);
  Registered from = allocate(endpoint.rank, out.send, 65536);
  control::Receive receive(back.receive, to.buffer());
  receive.post();
  peer.rank.kill();

  control::Accept accept = endpoint.rank.accept(own);
  for (int i = 0; i < 50; ++i) {
    if (i < 2 && !half_open.done()) half_open.try_poll();  // only 2: a call may retry a refused connect for seconds
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
  control::require_success(endpoint.rank.try_devices());
}

RULE_ON(LostPeer, ER_04, Must, ApiRange::all(),  //
        .title = "sends fail after the death of the peer",
        .text = "After the peer's process was killed, later sends end in an error from isend or test.",
        .source = "NVIDIA/nccl #992, #1777: otherwise only the user's watchdog ends the hang",
        .why = "A hang after the death of a peer ends only by the user's watchdog.",
        .check = "Kills the receiver, then sends until isend or test returns an error.",
        .blind = "Which of the codes it is: another code than system or remote error is a weakness.",
        .faults = {{"NVIDIA/nccl#992", "a lost peer left the others waiting"},
                   {"NVIDIA/nccl#1777", "after the loss of a node the job hung"}}) {
  connect_ranks();
  receiver_->rank.kill();
  check_code(send_until_error(kKilled), kKilled);
}

}  // namespace plugfest::conformance
