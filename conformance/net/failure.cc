// TS and ER rules: error codes after the death of a peer or an invalid call, and the scope of an error.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/peer.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

static constexpr std::string_view kKilled = "the receiver was killed";

RULE_ON(LostPeer, TS_09, Must, ApiRange::all(),  //
        .title = "a send that cannot complete ends in an error",
        .text =
            "When the transport fails a send because the receiver is dead, test returns an error. It does not report "
            "\"not done\" forever.",
        .source = "aws-ofi-nccl #347; NVIDIA/nccl #863",
        .why = "NCCL ends a job only when a call returns an error. Otherwise a user's watchdog does, after minutes.",
        .check = "Stops the receiver with sends in flight, kills it, and tests until an error comes.",
        .blind = "A transport that retries for a long time before it reports the error.",
        .faults = {{"aws/aws-ofi-nccl#347", "a failed completion was not reported to NCCL"},
                   {"NVIDIA/nccl#863", "the death of a peer left the others waiting"}},
        .alone = true) {
  connect_ranks();
  receiver_->rank.freeze();  // sends from here on are in flight when the receiver dies
  std::vector<Request> requests;
  // Earlier messages of the receiver may still be in transit, so isend is called again if it returns NULL.
  for (int deferred = 0; requests.size() < kMessages / 2 && deferred < 500;) {
    const PointerOutcome sent = connection_->send.try_isend(from_->buffer(requests.size() * kSize, kSize));
    if (!sent.ok()) break;
    if (sent.value == 0)
      ++deferred;
    else
      requests.push_back(connection_->send.request(sent.value));
  }
  receiver_->rank.kill();
  check_code(send_until_error(kKilled, std::move(requests)), kKilled);

  // deregMr and close still succeed after an error (CL-11).
  require_success(from_->registration.try_dereg());
  require_success(connection_->send.try_close());
}

namespace {

// Sends one message after the other until one fails, and calls `between` meanwhile. Makes at most 100 tests.
void send_repeatedly(
    const SendComm& comm, const Buffer& buffer, const std::function<void()>& between = [] {}) {
  std::optional<Trial> send;
  for (int i = 0; i < 50; ++i) {
    between();
    if (!send || send->done()) send.emplace(Trial::send(comm, buffer));
    drive({&*send}, 2);
    if (send->failed()) return;
  }
}

}  // namespace

RULE(ER_01, Must, ApiRange::all(),  //
     .title = "every result code is 0 to 6",
     .text = "No call returns ncclInProgress (7) or an undefined value, regardless of what failed.",
     .source = "checks.h: NCCLCHECK does not treat 7 as an error",
     .why = "NCCL's macros do not treat ncclInProgress as an error, and print undefined values as unknown errors.",
     .check =
         "Registers with invalid types, tests a receive that has no send, kills the peer during a connect and during "
         "sends. The code of each call is checked, and so is the code of each call of all other rules: a rule in which "
         "a call returns another code is not tested, and this rule names it.",
     .blind = "Codes of failures that no rule causes.", .covers_undefined_codes = true) {
  Endpoint endpoint = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
  Connection connection = connect(endpoint, peer);
  Memory memory = endpoint.rank.allocate(4096);

  // Pointer types that no plugin supports, and that NCCL does not pass.
  probe([&] {
    const Connection probed = connect(near_endpoint(), far_endpoint());
    const Memory page = near_rank().allocate(4096);
    for (const int type : {0, 8, 64}) {
      const PointerOutcome outcome = probed.send.try_reg(page, type);
      if (outcome.ok()) probed.send.try_dereg(outcome.value);
    }
  });
  Memory target = peer.rank.allocate(4096);
  Registration target_registration = connection.receive.reg(target);
  const PointerOutcome receive = connection.receive.try_irecv({{target_registration.buffer(), 0}});
  if (receive.ok() && receive.value != 0)
    for (int i = 0; i < 4; ++i) connection.receive.request(receive.value).try_test();
  Listener listener = peer.rank.listen(peer.device);
  Registration registration = connection.send.reg(memory);
  peer.rank.kill();
  Connect connect = endpoint.rank.connect(endpoint.device, listener.handle());
  for (int i = 0; i < 2 && !connect.done(); ++i) {  // only 2: a call may retry a refused connect for seconds
    const PointerOutcome outcome = connect.try_poll();
    if (!outcome.ok()) break;
  }
  send_repeatedly(connection.send, registration.buffer());
  registration.try_dereg();
  connection.send.try_close();
}

RULE(ER_03, Must, ApiRange::all(),  //
     .title = "failures end in an error code, never in abort or exit",
     .text =
         "The plugin does not call abort or exit, fail an assertion or throw an exception, regardless of failures of "
         "the peer and of the network.",
     .source = "one plugin calls exit inside test; NCCL must be able to abort its communicators in order",
     .why = "An application may abort one communicator and continue. A plugin that calls exit takes this choice away.",
     .check =
         "Kills the peer while connections in both directions are in use and half open, continues to make calls, and "
         "requires the process to survive.",
     .blind = "Failures other than the death of a peer; ER-11 checks failures of the network.",
     .faults = {{"google/nccl-plugin-gpudirecttcpx", "test calls exit"}}) {
  Endpoint endpoint = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
  // The peer dies while two connections are in use and two are half open, one in each direction.
  Listener listener = peer.rank.listen(peer.device);
  Listener own = endpoint.rank.listen(endpoint.device);
  Connection out = connect(endpoint, peer), back = connect(peer, endpoint);
  Connect half_open = endpoint.rank.connect(endpoint.device, listener.handle());
  half_open.try_poll();
  Connect incoming = peer.rank.connect(peer.device, own.handle());
  incoming.try_poll();
  Registered to = allocate(endpoint.rank, back.receive, 65536);
  Registered from = allocate(endpoint.rank, out.send, 65536);
  Receive receive(back.receive, to.buffer());
  std::optional<Request> received;
  if (receive.post()) received = receive.request();
  peer.rank.kill();

  Accept accept = endpoint.rank.accept(own);
  int polls = 0;
  bool accepts = true;
  // As NCCL, makes no call on a request or a comm after an error of it.
  send_repeatedly(out.send, from.buffer(), [&] {
    if (polls++ < 2 && !half_open.done())
      half_open.try_poll();  // only 2: a call may retry a refused connect for seconds
    if (accepts && !accept.done()) accepts = accept.try_poll().ok();
    if (!received) return;
    const TestOutcome outcome = received->try_test();
    if (!outcome.ok() || outcome.done == 1) received.reset();
  });
  to.registration.try_dereg();
  from.registration.try_dereg();
  back.receive.try_close();
  out.send.try_close();
  own.try_close();
  require_success(endpoint.rank.try_devices());
}

RULE_ON(LostPeer, ER_04, Must, ApiRange::all(),  //
        .title = "sends fail after the death of the peer",
        .text = "After the peer's process was killed, later sends end in an error from isend or test.",
        .source = "NVIDIA/nccl #992, #1777: otherwise only the user's watchdog ends the hang",
        .why = "If no send fails after the death of a peer, the job hangs until a watchdog of the user ends it.",
        .check = "Kills the receiver, then sends until isend or test returns an error.",
        .blind = "A wrong error code: the rule only warns of codes other than system error and remote error.",
        .faults = {{"NVIDIA/nccl#992", "a lost peer left the others waiting"},
                   {"NVIDIA/nccl#1777", "after the loss of a node the job hung"}}) {
  connect_ranks();
  receiver_->rank.kill();
  check_code(send_until_error(kKilled), kKilled);
}

namespace {

// Base of rules about a comm whose peer dies.
class ErrorRule : public MessageRule {
 protected:
  static constexpr std::size_t kMessages = 4, kSize = 100000;

  // `environment`: the environment of the sender.
  Flow fresh_flow(const control::Environment& environment = {}) {
    const control::RankOptions sender = {.fresh = true, .environment = environment};
    return make_flow(near_endpoint(sender), far_endpoint({.fresh = true}), kMessages, kSize);
  }
  // Kills the receiver and sends until a send fails. Returns that send.
  Trial failed_send(Flow& flow) {
    flow.exchange(0);
    // A plugin may defer sends until their receives are posted.
    for (std::size_t i = 0; i < kMessages; ++i) flow.receive(i);
    traffic().post_receives();
    traffic().abandon(flow.recv_comm());
    flow.receiver().kill();
    StallLimit limit = detection_limit();
    while (!limit.expired()) {
      Trial send = Trial::send(flow.send_comm(), flow.source(0));
      while (!send.turn() && !limit.expired()) {
      }
      if (send.failed()) return send;
    }
    broken(fmt::format("rank {}: no send failed {} s after its receiver was killed, expected an error",
                       flow.sender().name(), limit.seconds()));
  }
};

}  // namespace

RULE_ON(ErrorRule, ER_02, Info, ApiRange::all(),  //
        .title = "result codes of failures", .text = "The plugin returns a result code for each kind of failure.",
        .source = "ext-net README: return codes",
        .why = "ncclCommGetAsyncError returns the code, by which users and frameworks distinguish failures.",
        .check = "Registers memory of an unknown type, sends to a rank that was killed, and reports both codes.") {
  Flow flow = fresh_flow();
  const PointerOutcome registered = flow.send_comm().try_reg(flow.from().memory, 8);
  observe("regMr of an unknown pointer type returned " + result_name(registered.code));
  observe("a send whose receiver was killed " + failed_send(flow).describe());
}

RULE_ON(
    ErrorRule, ER_05, Must, ApiRange::all(),  //
    .title = "an error of one comm does not end others",
    .text =
        "After the peer of one comm died, comms with other peers work. [S]: later sends of that comm fail too or stay "
        "pending; NCCL makes no calls on a comm after an error.",
    .source = "NCCL aborts one communicator; others of the process continue",
    .why = "If an error ends other comms, the failure of one host ends all jobs of a process.",
    .check =
        "Kills the peer of one comm and sends until that fails. Four messages on a comm with a third rank must "
        "arrive; three more sends on the failed comm must not be reported as done.",
    .blind = "Errors other than the death of a peer.", .ranks = 3) {
  const RankOptions fresh = {.fresh = true};
  Flow lost = make_flow(endpoint(0, 1, fresh), endpoint(1, 0, fresh), kMessages, kSize);
  Flow kept = make_flow(endpoint(0, 2, fresh), endpoint(2, 0, fresh), 4, 3000);
  kept.exchange(0);
  failed_send(lost);
  for (std::size_t i = 0; i < 4; ++i) kept.exchange(i);
  for (int i = 0; i < 3; ++i) {
    Trial later = Trial::send(lost.send_comm(), lost.source(0));
    drive({&later}, 50);
    if (!later.done()) continue;
    return should(false,
                  fmt::format("rank {}: a send on a comm that had failed was reported as done, expected an error",
                              lost.sender().name()));
  }
}

RULE_ON(
    MessageRule, ER_06, Should, ApiRange::all(),  //
    .title = "a lack of file descriptors is an error, not a crash",
    .text = "listen, connect and accept return an error when the process has no descriptor left, and work again later.",
    .source = "getrlimit(2): RLIMIT_NOFILE", .why = "If the plugin crashes, the application ends without a message.",
    .check =
        "Sets the limit of open files of a connected rank to what it has open, calls listen, connect and accept, and "
        "restores the limit. The old comm and a new one must then carry a message.",
    .blind = "Ranks in virtual machines, whose limit the rule does not change.",
    .faults = {{"NVIDIA/nccl#127", "connecting used more descriptors than allowed"},
               {"NVIDIA/nccl#550", "descriptors leaked while connecting"}}) {
  Endpoint endpoint = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
  Flow flow = make_flow(endpoint, peer, 1, 3000);
  flow.exchange(0);
  Listener at_peer = peer.rank.listen(peer.device), own = endpoint.rank.listen(endpoint.device);
  control::Connect connect = endpoint.rank.connect(endpoint.device, at_peer.handle());
  control::Accept accept = endpoint.rank.accept(own);
  control::Connect to_own = peer.rank.connect(peer.device, own.handle());
  to_own.poll();
  {
    const NoMoreDescriptors none(endpoint.rank);
    const auto code_of = [](auto& attempt) {
      int code = control::kSuccess;
      for (int i = 0; i < 8 && !attempt.done() && code == control::kSuccess; ++i) code = attempt.try_poll().code;
      return control::result_name(code);
    };
    const int listened = endpoint.rank.try_listen(endpoint.device).code;
    observe(fmt::format("without descriptors, listen returned {}, connect {} and accept {}",
                        control::result_name(listened), code_of(connect), code_of(accept)));
  }
  flow.exchange(0);
  make_flow(endpoint, peer, 1, 3000).exchange(0);
}

RULE_ON(ErrorRule, ER_07, Should, ApiRange::all().libraries_only(),  //
        .title = "errors are logged",
        .text = "A comm that fails writes a line at level WARN, and one that works does not.",
        .source = "ext-net README: logging",
        .why = "NCCL reports only a result code, which does not tell the user what to do.",
        .check =
            "Sends a message, kills the receiver and sends until that fails. The sender's log must have a line at "
            "level WARN after the failure, and none before.") {
  Flow flow = fresh_flow();
  auto warns = [&] {
    constexpr int kWarn = 2;
    const std::vector<LogLine> log = flow.sender().log();
    return std::any_of(log.begin(), log.end(), [](const LogLine& line) { return line.level == kWarn; });
  };
  flow.exchange(0);
  expect(!warns(),
         fmt::format("rank {}: a line at level WARN was logged, but nothing had failed", flow.sender().name()));
  const Trial failed = failed_send(flow);
  expect(warns(), fmt::format("{} returned {} and logged nothing at level WARN", failed.last().call,
                              result_name(failed.last().code)));
}

RULE(ER_13, Should, ApiRange::all(),  //
     .title = "a new process can take the place of a dead peer",
     .text =
         "After a peer's process has ended, a new process on the same host and device can connect to the survivor and "
         "exchange messages with it.",
     .source = "NCCL user guide, Fault Tolerance: survivors abort their communicator and create a new one",
     .why =
         "If a process keeps what it knew of a dead peer under that peer's address, it ends or hangs when a new "
         "process connects. A job then cannot replace a failed rank without a restart of all others.",
     .check =
         "Connects two ranks in both directions, delivers messages, kills one and closes the survivor's comms. Starts "
         "the dead rank again, connects it to the survivor in both directions, and delivers messages.",
     .blind = "A new process on another host, and survivors that still use the old comms.") {
  Endpoint survivor = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
  Connection out = connect_and_deliver(survivor, peer, random()());
  Connection back = connect_and_deliver(peer, survivor, random()());
  peer.rank.kill();
  out.send.try_close();
  back.receive.try_close();
  on_new_ranks([&] {
    const Endpoint successor = far_endpoint();
    connect_and_deliver(survivor, successor, random()());
    connect_and_deliver(successor, survivor, random()());
  });
}

RULE_ON(ErrorRule, XF_37, Should, ApiRange::all(),  //
        .title = "a dead peer causes no SIGPIPE",
        .text = "Writing to a connection whose peer is dead returns an error and does not raise SIGPIPE.",
        .source = "the default action of SIGPIPE ends the process",
        .why = "By default, SIGPIPE ends the application without a message.",
        .check =
            "Kills the receiver and sends until that fails, with SIGPIPE at its default action. The sending process "
            "must then answer another call.",
        .blind = "Writes that happen only in connect, accept or close.") {
  Flow flow = fresh_flow({{"PLUGFEST_RANK_SIGPIPE", "1"}});
  observe("the send " + failed_send(flow).describe());
  require_success(flow.sender().try_devices());
}

}  // namespace plugfest::conformance
