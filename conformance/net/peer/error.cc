// ER and XF rules: what an error of one comm means for the process and for other comms.
#include <fmt/format.h>
#include <sys/resource.h>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/trial.h"

namespace plugfest::conformance {

using control::Endpoint;

namespace {

/// Base of rules about a comm whose peer dies.
class ErrorRule : public MessageRule {
 protected:
  static constexpr std::size_t kMessages = 4, kSize = 100000;

  /// Between fresh ranks.
  Flow fresh_flow() {
    return make_flow(near_endpoint({.fresh = true}), far_endpoint({.fresh = true}), kMessages, kSize);
  }
  /// Kills the receiver and sends until a send fails. Returns that send.
  Trial failed_send(Flow& flow) {
    flow.exchange(0);
    // A plugin may defer sends until their receives are posted.
    for (std::size_t i = 0; i < kMessages; ++i) flow.receive(i);
    traffic().post_receives();
    traffic().abandon(flow.recv_comm());
    flow.receiver().kill();
    control::StallLimit limit = stall_limit().times(3);
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
        .title = "result codes of failures", .text = "Which result code the plugin returns for each kind of failure.",
        .source = "ext-net README: return codes",
        .why = "The code ends up in ncclCommGetAsyncError, where users and frameworks tell failures apart by it.",
        .check = "Registers memory of an unknown type, sends to a rank that was killed, and reports both codes.") {
  Flow flow = fresh_flow();
  const control::PointerOutcome registered = flow.send_comm().try_reg(flow.from().memory, 8);
  observe("regMr of an unknown pointer type returned " + control::result_name(registered.code));
  observe("a send whose receiver was killed " + failed_send(flow).describe());
}

RULE_ON(ErrorRule, ER_05, Must, ApiRange::all(),  //
        .title = "an error of one comm does not end others",
        .text =
            "After the peer of one comm died, later sends of that comm fail too or stay pending, and comms with other "
            "peers work.",
        .source = "NCCL aborts one communicator; others of the process go on",
        .why = "The failure of one host ends all jobs of a process.",
        .check =
            "Kills the peer of one comm and sends until that fails. Three more sends on that comm must not be reported "
            "as done; four messages on a comm with a third rank must arrive.",
        .blind = "Errors other than the death of a peer.", .ranks = 3) {
  const control::RankOptions fresh = {.fresh = true};
  Flow lost = make_flow(endpoint(0, 1, fresh), endpoint(1, 0, fresh), kMessages, kSize);
  Flow kept = make_flow(endpoint(0, 2, fresh), endpoint(2, 0, fresh), 4, 3000);
  kept.exchange(0);
  failed_send(lost);
  for (int i = 0; i < 3; ++i) {
    Trial later = Trial::send(lost.send_comm(), lost.source(0));
    drive({&later}, 50);
    expect(!later.done(),
           fmt::format("rank {}: a send on a comm that had failed was reported as done, expected an error",
                       lost.sender().name()));
  }
  for (std::size_t i = 0; i < 4; ++i) kept.exchange(i);
}

RULE_ON(MessageRule, ER_06, Should, ApiRange::all(),  //
        .title = "a lack of file descriptors is an error, not a crash",
        .text = "listen and connect return an error when the process has no descriptor left, and work again later.",
        .source = "getrlimit(2): RLIMIT_NOFILE", .why = "The application dies without a message.",
        .check =
            "Sets the limit of open files of a connected rank to what it has open, calls listen and connect, and "
            "restores the limit. The old comm and a new one must then carry a message.",
        .blind = "The limit of ranks in virtual machines is not changed.",
        .faults = {{"NVIDIA/nccl#127", "connecting used more descriptors than allowed"},
                   {"NVIDIA/nccl#550", "descriptors leaked while connecting"}}) {
  Endpoint endpoint = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
  Flow flow = make_flow(endpoint, peer, 1, 3000);
  flow.exchange(0);
  rlimit usual{};
  const auto descriptors = static_cast<rlim_t>(endpoint.rank.process().file_descriptors);
  if (prlimit(endpoint.rank.pid(), RLIMIT_NOFILE, nullptr, &usual) != 0) {
    skip("the limits of a rank cannot be changed here");
  }
  const rlimit none = {descriptors, usual.rlim_max};
  prlimit(endpoint.rank.pid(), RLIMIT_NOFILE, &none, nullptr);
  const control::ListenOutcome listened = endpoint.rank.try_listen(endpoint.device);
  control::Listener listener = peer.rank.listen(peer.device);
  control::Connect connect = endpoint.rank.connect(endpoint.device, listener.handle());
  const control::PointerOutcome connected = connect.try_poll();
  prlimit(endpoint.rank.pid(), RLIMIT_NOFILE, &usual, nullptr);
  observe(fmt::format("without descriptors, listen returned {} and connect {}", control::result_name(listened.code),
                      control::result_name(connected.code)));
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
    const std::vector<control::LogLine> log = flow.sender().log();
    return std::any_of(log.begin(), log.end(), [](const control::LogLine& line) { return line.level == kWarn; });
  };
  flow.exchange(0);
  expect(!warns(),
         fmt::format("rank {}: a line at level WARN was logged, but nothing had failed", flow.sender().name()));
  const Trial failed = failed_send(flow);
  expect(warns(), fmt::format("{} returned {} and logged nothing at level WARN", failed.last().call,
                              control::result_name(failed.last().code)));
}

RULE_ON(ErrorRule, XF_37, Should, ApiRange::all(),  //
        .title = "a dead peer causes no SIGPIPE",
        .text = "Writing to a connection whose peer is dead returns an error and does not raise SIGPIPE.",
        .source = "the default action of SIGPIPE ends the process", .why = "The application dies without a message.",
        .check =
            "Kills the receiver and sends until that fails, with SIGPIPE at its default action. The sending process "
            "must then answer another call.",
        .blind = "Writes that happen only in connect, accept or close.") {
  Flow flow = fresh_flow();
  observe("the send " + failed_send(flow).describe());
  control::require_success(flow.sender().try_devices());
}

}  // namespace plugfest::conformance
