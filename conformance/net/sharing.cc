// XF rules: memory and time that a transfer shares with other transfers, threads and processes.
#include <fmt/format.h>

#include <cstring>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

RULE_ON(MessageRule, XF_17, Must, ApiRange::all(),  //
        .title = "received bytes are visible to every thread",
        .text = "When test reports a receive as done, another thread of the process reads all of its bytes.",
        .source = "transport/net.cc: the GPU and other threads read the buffer right after done",
        .why = "The GPU is another reader of the memory. If the bytes are not visible to it, it reads old bytes.",
        .check = "Another thread compares the buffer after each test that reports done, before any other call.") {
  constexpr std::size_t kSlots = 8;
  Flow flow = make_flow(kSlots, 5000);
  for (int round = 0; round < 12; ++round) {
    std::vector<Flow::Ticket> receives;
    for (std::size_t i = 0; i < kSlots; ++i) {
      receives.push_back(flow.receive(i));
      flow.send(i);
    }
    for (std::size_t i = 0; i < kSlots; ++i) {
      traffic().until_done(receives[i]);
      flow.check(i);
    }
    traffic().finish();
  }
}

RULE_ON(
    MessageRule, XF_18, Must, ApiRange::all(),  //
    .title = "no flag of LL or LL128 arrives before its data",
    .text =
        "While a message arrives, the last 4 bytes of an aligned word of 8 bytes do not appear before its first 4, and "
        "the last 8 bytes of an aligned line of 128 bytes do not appear before its other bytes.",
    .source = "device/prims_ll.h and prims_ll128.h: kernels poll flags in the receive buffer itself",
    .why =
        "Each word of the protocol LL has 4 bytes of data and their flag, each line of LL128 120 bytes and a flag. A "
        "kernel that sees the flag first takes old bytes for data: the result is wrong, and nothing reports it. A "
        "plugin that cannot keep this order sets NCCL_PROTO in init, for example to Simple.",
    .check =
        "A thread reads the receive buffer all the time, as a kernel does, while 64 messages arrive in it. It ignores "
        "the order that only a protocol needs that NCCL_PROTO excludes.",
    .blind = "A wrong order lasts only some nanoseconds, and may be missed if less than 1 of 1000 words has it.") {
  const FlagProtocols protocols = flag_protocols(near_rank());
  constexpr std::size_t kSize = 128 * 1024;
  constexpr int kMessages = 64;
  Flow flow = make_flow(1, kSize);
  for (int message = 0; message < kMessages; ++message) {
    flow.receiver().set(flow.to().memory, 0);
    flow.fill(0);
    auto watch = flow.watch(0, protocols.ll, protocols.ll128);
    flow.receive(0);
    flow.send_filled(0);
    flow.finish();
    const std::string broken = watch.get().broken;
    expect(broken.empty(), [&] { return fmt::format("rank {}: {}", flow.receiver().name(), broken); });
  }
}

RULE_ON(MessageRule, XF_20, Info, ApiRange::from(9),  //
        .title = "size of a receive with optional completion",
        .text = "A receive posted with *request = 1 may report 0 or the size of the message.",
        .source = "transport/net.cc: recvProxyProgress, ignoreCompletion",
        .why = "NCCL ignores the size of such a receive. If the plugin reports it, a trace can show it.",
        .check = "Marks one receive of 3000 bytes, sends 1000 bytes, and reports the size that test wrote.") {
  Flow flow = make_flow(1, 3000);
  const Flow::Ticket receive = flow.receive(0, Flow::kWhole, 0, {.request = Preset::kMarker});
  flow.send(0, 1000);
  traffic().finish();
  observe(fmt::format("a marked receive of a message of 1000 bytes reported {}", traffic().size(receive)));
}

RULE_ON(MessageRule, XF_29, Must, ApiRange::all(),  //
        .title = "each buffer of a group has its own registration",
        .text = "The buffers of one receive may belong to different registrations.",
        .source = "transport/net.cc: recvProxyProgress passes one mhandle for each buffer",
        .why =
            "A plugin that uses one registration for all buffers accesses memory outside it: the transfer fails or "
            "corrupts memory.",
        .check =
            "Posts groups of maxRecvs buffers, each in memory of its own registration, sends to them in random order, "
            "and compares every byte.") {
  const std::size_t width = widest_group();
  const Connection connection = connect(sender(), receiver());
  std::vector<Flow> flows;
  for (std::size_t i = 0; i < width; ++i) flows.push_back(make_flow(connection, 1, 2048));
  for (int round = 0; round < 3; ++round) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < width; ++i) parts.push_back({flows[i].target(0), static_cast<int>(i)});
    traffic().receive(connection.receive, parts);
    for (const std::size_t i : shuffled(width)) flows[i].send(0, 1000 + i, static_cast<int>(i));
    traffic().finish();
    for (Flow& flow : flows) flow.check();
  }
}

RULE_ON(MessageRule, XF_33, Must, ApiRange::all(),  //
        .title = "several sends may use one buffer at once",
        .text = "One buffer is sent over several comms at the same time.",
        .source = "transport/net.cc: a broadcast sends one buffer to several peers",
        .why =
            "A broadcast sends one buffer to several peers. If only one comm can use it at a time, the operation fails "
            "or hangs.",
        .check =
            "Registers one buffer of 200,000 bytes on four comms, sends it on all of them at once, and compares the "
            "four copies.") {
  constexpr std::size_t kComms = 4, kSize = 200000;
  const Memory shared = sender().rank.allocate(kSize);
  const std::uint64_t seed = random()();
  sender().rank.fill(shared, seed);
  std::vector<Flow> flows;
  for (std::size_t i = 0; i < kComms; ++i) flows.push_back(make_flow(1, kSize));
  for (Flow& flow : flows) {
    flow.receive(0);
    traffic().send(flow.send_comm(), register_pages(flow.send_comm(), shared));
  }
  traffic().finish();
  for (Flow& flow : flows)
    require_content(flow.receiver(), flow.target(0).slice, seed, "a message from a shared buffer");
}

RULE_ON(MessageRule, XF_35, Must, ApiRange::all(),  //
        .title = "isend and irecv never return ncclInProgress",
        .text = "A call that cannot post yet returns Success and NULL, not ncclInProgress (7).",
        .source = "checks.h: NCCLCHECK does not treat 7 as an error",
        .why = "NCCL does not treat 7 as an error, and tests an old *request as if it were the new one.",
        .check =
            "Calls isend eight times without a receive, and irecv eight times without a send. A result of 7 breaks the "
            "rule.",
        .blind = "Calls that would wait only under load; ER-01 checks the codes of all calls of all rules.") {
  Flow sends = make_flow(1, 64), receives = make_flow(1, 64);
  check_codes([&] {
    for (int i = 0; i < 8; ++i) {
      sends.send_comm().isend(sends.source(0));
      receives.recv_comm().irecv(receives.target(0));
    }
  });
}

RULE_ON(
    MessageRule, XF_40, Must, ApiRange::all(),  //
    .title = "a receive of one buffer takes only its tag",
    .text = "A send waits while the oldest incomplete receive has another tag, even if that receive has one buffer.",
    .source = "transport/net.cc: with shared comms, receives of one buffer belong to different peers",
    .why =
        "With shared comms, successive receives of one buffer belong to different peers. Without the tag each peer's "
        "buffer gets the message of the other.",
    .check =
        "Posts a receive of tag 31, then one of tag 32. Sends tag 32, which must not complete the first receive, then "
        "tag 31, and compares both.",
    .faults = {{"aws/aws-ofi-nccl#1237", "the tag was ignored for receives of one buffer"}}) {
  widest_group();  // with maxRecvs 1, comms are not shared
  Flow flow = make_flow(2, 3000);
  for (int round = 0; round < 4; ++round) {
    const Flow::Ticket first = flow.receive(0, Flow::kWhole, 31);
    flow.receive(1, Flow::kWhole, 32);
    traffic().post_receives();
    flow.send(1, 2000, 32);
    traffic().steps(32);
    expect(!traffic().done(first),
           fmt::format("rank {}: test completed a receive of tag 31 after a send with tag 32, expected not done",
                       flow.receiver().name()));
    flow.send(0, 1000, 31);
    flow.finish();
  }
}

RULE_ON(MessageRule, XF_41, Must, ApiRange::all(),  //
        .title = "a send before its receive reports its size after a group",
        .text = "A message that was sent before its receive was posted has the right size, even after a group.",
        .source = "transport/net.cc: recvProxyProgress takes the size for what it has received",
        .why = "NCCL does not flush after a receive that reports 0 bytes, and the GPU reads old data.",
        .check =
            "Completes a group, sends 2000 bytes, posts the receive 16 rounds later, and compares the size that test "
            "reports.",
        .faults = {{"aws/aws-ofi-nccl#1346", "a queued message reported size 0 after a grouped receive"}}) {
  const std::size_t width = widest_group();
  Flow flow = make_flow(width, 3000);
  for (int round = 0; round < 4; ++round) {
    flow.receive_group(0, tags_from(0, width));
    for (const std::size_t i : shuffled(width)) flow.send(i, 1000 + i, static_cast<int>(i));
    flow.finish();
    flow.send(0, 2000);
    traffic().steps(16);
    const Flow::Ticket receive = flow.receive(0);
    flow.finish();
    judge_sizes([&] {
      require_size(flow.receiver().name(), traffic().size(receive), 2000, "a message sent early after a group");
    });
  }
}

}  // namespace plugfest::conformance
