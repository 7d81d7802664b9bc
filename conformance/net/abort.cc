// CL rules: an abort, which closes comms with operations outstanding, after errors, and on several threads.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/peer.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(CL_03, Must, ApiRange::all(),  //
     .title = "close succeeds with operations outstanding",
     .text =
         "On an abort with receives and sends outstanding, NCCL deregisters the memory and closes the comms. Nothing "
         "hangs or crashes, and the memory is not accessed.",
     .source = "transport/net.cc: the abort path; aws-ofi-nccl #868, #953",
     .why =
         "On an abort NCCL closes comms with operations outstanding and frees their memory. A close that hangs or "
         "fails prevents a restart, and a later access corrupts memory.",
     .check =
         "Posts 8 receives and sends, deregisters, forbids access to the memory, closes all comms, and connects again.",
     .blind = "Accesses of a hardware NIC, which page protection does not stop.",
     .faults = {{"aws/aws-ofi-nccl#868",
                 "closing a comm with requests in flight returned an error, and NCCL leaked its memory"},
                {"aws/aws-ofi-nccl#953", "closing during an abort failed"}}) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  Connection out = connect_and_deliver(left, right, random()()), back = connect_and_deliver(right, left, random()());
  constexpr std::size_t kOperations = 8, kSize = 40000;
  Registered to_left = allocate(left.rank, back.receive, kOperations * kSize);
  Registered from_left = allocate(left.rank, out.send, kOperations * kSize);
  for (std::size_t i = 0; i < kOperations; ++i) {
    Receive receive(back.receive, to_left.buffer(i * kSize, kSize));
    Send send(out.send, from_left.buffer(i * kSize, kSize));
    receive.post();
    for (int attempt = 0; attempt < 4 && !send.post(); ++attempt) {
    }
  }
  to_left.registration.dereg();
  from_left.registration.dereg();
  to_left.memory.forbid();
  from_left.memory.forbid();
  back.receive.close();
  out.send.close();
  out.receive.close();
  back.send.close();

  Connection afterwards = connect(left, right);
  deliver(left, right, afterwards, {.size = 1000, .seed = random()()});
}

RULE_ON(
    LostPeer, CL_11, Must, ApiRange::all(),  //
    .title = "a failed comm can be closed",
    .text = "After an error of an operation, deregMr and close of the comm succeed.",
    .source = "proxy.cc: after an error the progress thread ends; the service thread frees the connections",
    .why =
        "If the comm cannot be closed, ncclCommAbort fails, and the application cannot continue without the lost rank.",
    .check = "Stops the receiver, sends, kills it, sends until an error, then deregisters and closes.",
    .blind = "Other connections of the process; ER-05 checks them.", .alone = true) {
  connect_ranks();
  receiver_->rank.freeze();  // the send is in flight when the receiver dies
  PointerOutcome send = connection_->send.try_isend(from_->buffer(0, kSize));
  receiver_->rank.kill();
  std::vector<Request> requests;
  if (send.ok() && send.value != 0) requests.push_back(connection_->send.request(send.value));
  send_until_error("the receiver was killed", requests);
  require_success(from_->registration.try_dereg());
  require_success(connection_->send.try_close());
}

RULE(CL_12, Must, ApiRange::all(),  //
     .title = "an abort does not wait for a peer that does not abort",
     .text = "With sends and receives outstanding, deregMr and close return although the peer does nothing.",
     .source = "transport/net.cc: the abort path of one rank",
     .why = "If close waits for the peer, ncclCommAbort hangs in one rank until the others also abort.",
     .check = "Leaves sends and receives outstanding, stops the peer, deregisters and closes at one side.",
     .faults = {{"aws/aws-ofi-nccl#907", "close hung when only one side aborted"}}, .alone = true) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  Connection out = connect_and_deliver(left, right, random()()), back = connect_and_deliver(right, left, random()());
  constexpr std::size_t kOperations = 4, kSize = 1 << 20;
  Registered from = allocate(left.rank, out.send, kOperations * kSize);
  Registered to = allocate(left.rank, back.receive, kOperations * kSize);
  Registered at_peer = allocate(right.rank, out.receive, kSize);
  Trial received = Trial::receive(out.receive, {{at_peer.buffer(), 0}});
  received.turn();
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < kOperations; ++i) {
    trials.push_back(Trial::receive(back.receive, {{to.buffer(i * kSize, kSize), 0}}));
    trials.push_back(Trial::send(out.send, from.buffer(i * kSize, kSize)));
  }
  for (Trial& trial : trials) drive({&trial}, 2);
  right.rank.freeze();
  from.registration.dereg();
  to.registration.dereg();
  out.send.close();
  back.receive.close();
  right.rank.thaw();
  Connection after = connect(left, right);
  deliver(left, right, after, {.size = 1000, .seed = random()()});
}

RULE(CL_14, Must, ApiRange::all(),  //
     .title = "several threads abort at the same time",
     .text =
         "The threads of several communicators deregister and close at the same time, with operations outstanding. All "
         "calls succeed.",
     .source = "proxy.cc: each communicator has a service thread; an application aborts all of them",
     .why = "If the calls disturb each other, the abort of a process with several communicators hangs or crashes.",
     .check =
         "Sends a message and starts a transfer on each of four connections, two in each direction. At one rank, then "
         "at the other, four threads deregister at the same time and close at the same time, twice. Then a new "
         "connection must work.",
     .blind = "Races that need a particular order of instructions.",
     .faults = {{"aws/aws-ofi-nccl", "aborts on several threads were not serialized"}}) {
  Endpoint left = near_endpoint(), right = far_endpoint();
  constexpr int kEachWay = 2;
  constexpr std::size_t kSize = 1 << 20;
  for (int round = 0; round < 2; ++round) {
    // In NCCL, the service thread of a communicator connects, registers, deregisters and closes.
    std::vector<RegisteredConnection> out, back;
    const auto connect_on = [&](int communicator, const Endpoint& from, const Endpoint& to) {
      const std::string thread = fmt::format("svc{}", communicator);
      const Endpoint sender = {from.rank.on(thread), from.device}, receiver = {to.rank.on(thread), to.device};
      RegisteredConnection made = std::move(connect_registered(sender, receiver, 1, kSize).front());
      deliver(sender, made.send, receiver, made.receive, {.size = 1000, .seed = random()()});
      return made;
    };
    for (int i = 0; i < kEachWay; ++i) {
      out.push_back(connect_on(i, left, right));
      back.push_back(connect_on(kEachWay + i, right, left));
    }
    std::vector<Trial> trials;
    for (const std::vector<RegisteredConnection>* streams : {&out, &back}) {
      for (const RegisteredConnection& stream : *streams) {
        trials.push_back(Trial::receive(stream.receive.on("prog"), {{stream.to.buffer(), 0}}));
        trials.push_back(Trial::send(stream.send.on("prog"), stream.from.buffer()));
      }
    }
    for (int turn = 0; turn < 3; ++turn)
      for (Trial& trial : trials) trial.turn();
    // `sends`: the connections whose sender is at the rank that aborts; `receives`: those whose receiver is.
    const auto abort = [](std::vector<RegisteredConnection>& sends, std::vector<RegisteredConnection>& receives) {
      std::vector<Started<Outcome>> calls;
      const auto at_once = [&](const auto& of_sender, const auto& of_receiver) {
        for (RegisteredConnection& stream : sends) calls.push_back(of_sender(stream));
        for (RegisteredConnection& stream : receives) calls.push_back(of_receiver(stream));
        for (Started<Outcome>& call : calls) require_success(call.get());
        calls.clear();
      };
      at_once([](auto& stream) { return stream.from.registration.start_dereg(); },
              [](auto& stream) { return stream.to.registration.start_dereg(); });
      at_once([](auto& stream) { return stream.send.start_close(); },
              [](auto& stream) { return stream.receive.start_close(); });
    };
    abort(out, back);
    abort(back, out);
  }
  connect_and_deliver(left, right, random()());
}

}  // namespace plugfest::conformance
