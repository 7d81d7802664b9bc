// ER: what happens when the network breaks between two ranks that live: a link that goes down, a port that loses its
// address.
#include <fmt/format.h>

#include <optional>

#include "conformance/net/lost_peer.h"
#include "conformance/net/traffic.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Outcome;
using control::PointerOutcome;
using control::Request;

RULE_ON(
    LostPeer, ER_09, Should, ApiRange::all(),  //
    .title = "a network that is cut is noticed",
    .text = "When the link to a peer that lives goes down and stays down, sends end in an error from isend or test.",
    .source = "NVIDIA/nccl #992, #1777: only the user's watchdog helps otherwise; RC gives up after its retries") {
  // Known transports are told to give up within seconds, as an operator would tell them.
  connect_ranks({{"NCCL_IB_TIMEOUT", "14"}, {"NCCL_MESH_TIMEOUT", "14"}});
  // A sender that waits for word of a posted receive has nothing on its way, and nothing that could fail: the first
  // message goes through, and word of the other receives is there.
  Traffic traffic(stall_timeout());
  traffic.send(connection_->send, from_->buffer(0, kSize));
  traffic.posted_receive(connection_->receive, receives_[0]);
  traffic.finish();
  const faults::ActiveFault down = take_link_down();
  remark_on(send_into_the_void("the link was taken down", 1), "disappearance");
}

RULE_ON(LostPeer, ER_10, Should, ApiRange::all(),  //
        .title = "a link that is back soon has lost nothing",
        .text =
            "Messages that are on their way when the link goes down, and comes back while the transport still repeats, "
            "arrive whole: a port that goes down is no reason to give up.",
        .source = "links flap; RC and TCP repeat; for net_ib a port error is a warning, not the end of a comm") {
  connect_ranks();
  constexpr int kRounds = 10;  // few: the link is back long before any transport gives up
  Traffic traffic(stall_timeout());
  std::vector<std::uint64_t> seeds;
  {
    const faults::ActiveFault down = take_link_down();
    for (std::size_t i = 0; i < kMessages; ++i) {
      seeds.push_back(random()());
      sender_->rank.fill(from_->slice(i * kSize, kSize), seeds.back());
      traffic.send(connection_->send, from_->buffer(i * kSize, kSize));
      traffic.posted_receive(connection_->receive, receives_[i]);
    }
    for (int round = 0; round < kRounds; ++round) traffic.step();
  }
  traffic.finish();
  for (std::size_t i = 0; i < kMessages; ++i) {
    require_content(receiver_->rank, to_->slice(i * kSize, kSize), seeds[i], fmt::format("message {}", i));
  }
}

namespace {

/// Rounds of calls that may end as they like, with codes that NCCL knows.
class AnyOutcome : public RuleBody {
 protected:
  void connect_ranks() {
    end_ = near_endpoint({.fresh = true});
    peer_ = far_endpoint({.fresh = true});
    out_ = control::connect(*end_, *peer_);
    back_ = control::connect(*peer_, *end_);
    from_ = allocate(end_->rank, out_->send, kSize);
    to_ = allocate(end_->rank, back_->receive, kSize);
    control::Receive receive(back_->receive, to_->buffer());
    receive.post();
    if (receive.request()) received_ = receive.request();
  }

  void use() {
    for (int round = 0; round < 50; ++round) {
      if (!sent_) {
        const PointerOutcome outcome = out_->send.try_isend(from_->buffer());
        require_known(outcome);
        if (outcome.ok() && outcome.value != 0) sent_ = out_->send.request(outcome.value);
      }
      test(sent_);
      test(received_);
    }
  }

  void close() {
    for (Registered* memory : {&*from_, &*to_}) require_known(memory->registration.try_dereg());
    require_known(out_->send.try_close());
    require_known(back_->receive.try_close());
  }

  static constexpr std::size_t kSize = 1 << 20;
  std::optional<Endpoint> end_, peer_;

 private:
  static void test(std::optional<Request>& request) {
    if (!request) return;
    const control::TestOutcome outcome = request->try_test();
    require_known(outcome);
    if (!outcome.ok() || outcome.done == 1) request.reset();
  }

  std::optional<Connection> out_, back_;
  std::optional<Registered> from_, to_;
  std::optional<Request> sent_, received_;
};

}  // namespace

RULE_ON(AnyOutcome, ER_11, Must, ApiRange::all(),  //
        .title = "trouble in the network ends in a code too",
        .text =
            "A link that goes down under traffic and a peer whose address changes may end operations in errors, and "
            "end nothing else: no abort, no exit, no call that hangs, and no code but those that NCCL knows.",
        .source = "one plugin calls exit inside test; port errors and GID changes come as asynchronous events") {
  connect_ranks();
  {
    const faults::ActiveFault down = take_link_down();
    use();
  }
  use();
  {
    const auto elsewhere = change_far_address();
    if (!elsewhere) observe("the address stayed: its subnet has no other to spare");
    use();
  }
  use();
  close();
  control::require_success(end_->rank.try_devices());
}

}  // namespace plugfest::conformance
