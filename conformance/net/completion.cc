// TS rules: results of test, and progress.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "conformance/net/script/flow.h"
#include "fabric/system/clock.h"
#include "harness/control/call.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

RULE_ON(MessageRule, TS_01, Must, ApiRange::all(),  //
        .title = "test writes *done on every Success",
        .text = "*done is 0 or 1 after every test that returns Success, regardless of its previous value.",
        .source = "transport/net.cc: the variable is uninitialized, and 1 in the flush phase",
        .why =
            "NCCL's variable is uninitialized, and 1 in the flush phase. A test that leaves it unwritten reports a "
            "completion at random.",
        .check = "Presets *done to four values, tests a receive before and after its send, and looks at *done.",
        .blind = "Requests of flushes.") {
  Flow flow = make_flow(1, 3000);
  flow.exchange(0);
  // *done must not keep its value from before the call.
  for (const int preset : {1, 0x5a5a5a5a, 0, -1}) {
    traffic().test_with({.done = preset});  // a *done that is neither 0 nor 1 ends the rule
    const Flow::Ticket receive = flow.receive(0);
    traffic().steps(17);
    expect(!traffic().done(receive),
           fmt::format("rank {}: *done is 1 after a test before the send, expected 0 (*done was {:#x} before the call)",
                       flow.receiver().name(), preset));
    flow.send(0);
    flow.finish();
  }
}

RULE_ON(MessageRule, TS_03, Must, ApiRange::all(),  //
        .title = "test accepts NULL for sizes",
        .text =
            "sizes may be NULL for flush requests, and up to v7 for sends. [S]: sizes may also be NULL for receives "
            "and other sends.",
        .source =
            "transport/net.cc: third phase of recvProxyProgress; NCCL 2.19 and older for sends; bootstrap.cc: "
            "netIsend and netIrecv",
        .why =
            "NCCL passes NULL for flushes, and did so for sends up to 2.19, whose newest version is v7. A plugin that "
            "writes to it crashes the process. With NCCL_OOB_NET_ENABLE=1, off by default, the bootstrap passes NULL "
            "for sends and receives.",
        .check =
            "Tests a send and a receive with sizes NULL, and a flush of host memory if ptrSupport has the CUDA bit. A "
            "failure of that flush is [S].",
        .blind = "Flushes of GPU memory.") {
  const auto send_without_sizes = [&](Flow& flow) {
    Send send(flow.send_comm(), flow.fill(0), 0, {}, {.sizes = false});
    Receive receive(flow.recv_comm(), flow.target(0));
    finish({&receive, &send});
    flow.check();
  };
  Flow flow = make_flow(1, 3000);
  const bool send_has_sizes = api() >= 8;
  if (!send_has_sizes) send_without_sizes(flow);

  // NCCL flushes only GPU memory. A plugin may refuse a flush of host memory, or return no request for it.
  if (flow.receiver().has_function("iflush") && has_cuda_bit(receiver())) {
    probe([&] {
      Flow flushed = make_flow(1, 3000);
      const PointerOutcome flush = flushed.recv_comm().try_iflush({{flushed.target(0), 0}});
      if (flush.ok() && flush.value != 0) flushed.recv_comm().request(flush.value).wait({.done = 1, .sizes = false});
    });
  }

  // Unless NCCL_OOB_NET_ENABLE=1 is set, NCCL passes an array in these cases, so a plugin may refuse NULL.
  probe([&] {
    Flow probed = make_flow(1, 3000);
    if (send_has_sizes) send_without_sizes(probed);
    Send next(probed.send_comm(), probed.fill(0));
    Receive without_sizes(probed.recv_comm(), probed.target(0), 0, {}, {.sizes = false});
    finish({&without_sizes, &next});
    probed.check();
  });
}

RULE_ON(
    MessageRule, TS_04, Must, ApiRange::all(),  //
    .title = "test writes only the sizes of its request",
    .text =
        "When a receive is done, exactly its n entries of sizes are written. When a send is done, sizes[0] may be "
        "written: with the sent size up to v8, where a wrong one is a warning unless the device has the CUDA bit. No "
        "other entry is ever written.",
    .source = "transport/net.cc: recvProxyProgress sums sizes[NCCL_PROXY_MAX_SUBS] to decide about the flush",
    .why = "The entries after the request's own belong to other operations of the group.",
    .check = "Presets all 64 entries to three values and compares those that no request owns.",
    .blind = "Sizes of groups; XF-26 checks them.", .faults = {{"google/nccl-fastsocket", "test never writes sizes"}}) {
  constexpr int kSize = 3000;
  Flow flow = make_flow(1, kSize);
  for (const int fill : {kUnwrittenSize, 0, 0x12345678}) {
    traffic().test_with({.size_fill = fill});
    const Flow::Ticket receive = flow.receive(0);
    traffic().steps(16);
    const Flow::Ticket send = flow.send(0);
    flow.finish();
    auto require_sizes = [&](const std::string& rank, const char* what, Flow::Ticket ticket, bool sends) {
      const std::vector<int>& sizes = traffic().outcome(ticket).sizes;
      if (!sends) judge_sizes([&] { require_size(rank, sizes[0], kSize, what); });
      if (sends && sizes[0] != fill) judge_sent_size(sizes[0], kSize, what);
      for (std::size_t i = 1; i < sizes.size(); ++i)
        expect(sizes[i] == fill, [&] {
          return fmt::format("rank {}: test of {} wrote sizes[{}] = {}, expected no write", rank, what, i, sizes[i]);
        });
    };
    require_sizes(flow.receiver().name(), "a receive of one buffer", receive, false);
    require_sizes(flow.sender().name(), "a send", send, true);
  }
}

RULE_ON(
    MessageRule, TS_06, Must, ApiRange::all(),  //
    .title = "testing only the oldest request makes progress",
    .text =
        "With several requests outstanding, repeated tests of the oldest request of a comm complete it. No other call "
        "is needed.",
    .source = "transport/net.cc: sendProxyProgress and recvProxyProgress test the oldest step",
    .why = "NCCL tests the oldest step only. A plugin that waits for a test of a newer one stops.",
    .check = "Streams 400 messages of up to 256 KiB with 8 in flight, then posts 8 at once and tests only the oldest.",
    .blind = "Transfers that stop only with more than 8 requests.",
    .faults = {
        {"aws/aws-ofi-nccl#347", "an error of a later request was not reported, and the oldest never completed"}}) {
  constexpr std::size_t kRequests = 8;
  Flow flow = make_flow(kRequests, 20000);
  stream(flow.send_comm(), flow.recv_comm(),
         {.count = 400, .seed = random()(), .sizes = {1, 4096, 65536, 262144}, .window = 8});

  // All requests are posted first. Afterwards only the oldest is tested, and no other call is made.
  for (std::size_t i = 0; i < kRequests; ++i) flow.receive(i);
  traffic().post_receives();
  for (std::size_t i = 0; i < kRequests; ++i) flow.send(i);
  flow.finish();
}

RULE_ON(MessageRule, TS_02, Must, ApiRange::all(),  //
        .title = "test never waits",
        .text = "While an operation is not done, test returns Success with *done 0 and does not wait.",
        .source = "proxy.cc: one thread tests all requests of a GPU",
        .why = "One thread tests all requests of a GPU. A test that waits stops the rest.",
        .check =
            "Tests a receive 200 times while its sender is stopped, and tests both endpoints of a message of 32 MiB (4 "
            "MiB if NCCL passes only its own buffers) while the other endpoint is stopped in the middle.",
        .blind = "Waits of less than the time limit of a call.",
        .faults = {{"autoscriptlabs/nccl-mesh-plugin#20", "test looped until a message was complete"}}, .alone = true) {
  // The peer is stopped: a test that waits for it times out. It stops before the send first, then in the middle of a
  // message.
  Flow flow = make_flow(1, 3000);
  flow.exchange(0);
  const Flow::Ticket receive = flow.receive(0);
  traffic().post_receives();
  flow.sender().freeze();
  traffic().steps(200);
  expect(
      !traffic().done(receive),
      fmt::format("rank {}: test wrote *done = 1 for a receive before its send, expected 0", flow.receiver().name()));
  flow.sender().thaw();
  flow.send(0);
  flow.finish();

  // Its transfer takes longer than stopping a process, and calls cannot observe the progress of a single message.
  Traffic patient(stall_limit().times(6));
  Flow large(patient, random(), sender(), receiver(), flow.connection(), 1, usual_size(32 << 20));
  for (const int steps_before : {1, 4}) {
    for (const bool stop_sender : {true, false}) {
      large.receive(0);
      large.send(0);
      patient.steps(steps_before);
      Rank& stopped = stop_sender ? large.sender() : large.receiver();
      const auto pause = [&](auto change) {
        if (stop_sender)
          (patient.*change)(large.send_comm());
        else
          (patient.*change)(large.recv_comm());
      };
      pause(&Traffic::pause);
      stopped.freeze();
      patient.steps(50);
      stopped.thaw();
      pause(&Traffic::resume);
      large.finish();
    }
  }
}

RULE_ON(MessageRule, TS_05, Must, ApiRange::all(),  //
        .title = "requests in flight are distinct",
        .text =
            "No two outstanding operations have the same request pointer. A pointer is reused only after its operation "
            "is done. [S] if maxRecvs is 1 and irecvConsumed is NULL: then NCCL uses a request only to test it.",
        .source = "transport/net.cc identifies operations by their requests",
        .why =
            "NCCL identifies a receive by its request when it calls irecvConsumed and when it tests a group. With "
            "equal requests it takes one operation for another.",
        .check = "Posts 8 receives four times and compares the requests of those that are outstanding.",
        .blind = "Requests of sends, and of several comms.") {
  constexpr std::size_t kRequests = 8;
  Flow flow = make_flow(kRequests, 3000);
  const bool used_as_key = max_recvs() > 1 || flow.receiver().has_function("irecvConsumed");
  for (int round = 0; round < 4; ++round) {
    std::vector<Flow::Ticket> receives;
    for (std::size_t i = 0; i < kRequests; ++i) receives.push_back(flow.receive(i));
    traffic().post_receives();
    std::map<std::uint64_t, std::size_t> outstanding;
    for (std::size_t i = 0; i < kRequests && traffic().posted(receives[i]); ++i) {
      const std::uint64_t request = traffic().request(receives[i]).value();
      const auto [owner, is_new] = outstanding.emplace(request, i);
      auto message = [&, owner = owner] {
        return fmt::format(
            "rank {}: irecv #{} returned request {:#x}, which irecv #{} still uses, expected another one",
            flow.receiver().name(), i, request, owner->second);
      };
      expect(is_new || !used_as_key, message);
      should(is_new, message);
    }
    for (std::size_t i = 0; i < kRequests; ++i) flow.send(i);
    flow.finish();
  }
}

RULE_ON(MessageRule, TS_07, Must, ApiRange::all(),  //
        .title = "testing one comm loses no completion of another",
        .text = "A test on one comm may collect completions of another. A later test on that comm still reports them.",
        .source = "plugins share completion queues between comms",
        .why =
            "Plugins share completion queues between comms. A completion that the wrong comm collects and drops never "
            "returns.",
        .check = "Completes all receives of one comm while another comm's are not tested, then tests those.",
        .blind = "More than two comms and different devices.") {
  constexpr std::size_t kRequests = 6;
  Flow flows[] = {make_flow(kRequests, 4000), make_flow(kRequests, 4000)};
  Flow::Ticket last_of_first = 0;
  for (std::size_t i = 0; i < kRequests; ++i) {
    last_of_first = flows[0].receive(i);
    flows[1].receive(i);
  }
  traffic().post_receives();
  for (std::size_t i = 0; i < kRequests; ++i)
    for (Flow& flow : flows) flow.send(i);
  // The receives of the second connection are not tested until all of the first are done and 64 more rounds have
  // passed.
  traffic().pause(flows[1].recv_comm());
  traffic().until_done(last_of_first);
  traffic().steps(64);
  traffic().resume(flows[1].recv_comm());
  traffic().finish();
  for (Flow& flow : flows) flow.check();
}

RULE_ON(
    MessageRule, TS_08, Must, ApiRange::all(),  //
    .title = "requests may be tested in any order",
    .text = "Testing requests in another order than they were posted in gives correct results. [S] if maxRecvs is 1.",
    .source = "transport/net.cc: with shared comms, each sub-operation tests its own requests",
    .why =
        "If maxRecvs is above 1, operations share a comm, and each tests its own requests. An error of test ends "
        "the communicator.",
    .check =
        "Posts six receives and six sends, tests them from the newest to the oldest until all are over, and "
        "compares every byte.",
    .blind = "Orders other than the reverse one.") {
  constexpr std::size_t kRequests = 6;
  const auto complain = [this](const std::string& message) {
    expect(max_recvs() == 1, message);
    should(false, message);
  };
  Flow flow = make_flow(kRequests, 3000);
  flow.exchange(0);
  std::vector<Trial> receives, sends;
  for (std::size_t i = 0; i < kRequests; ++i) {
    receives.push_back(Trial::receive(flow.recv_comm(), {{flow.target(i), 0}}));
    sends.push_back(Trial::send(flow.send_comm(), flow.fill(i)));
  }
  for (auto* trials : {&receives, &sends}) {
    for (Trial& trial : *trials) {
      for (int i = 0; i < 200 && !trial.accepted() && !trial.over(); ++i) trial.turn();
      if (!trial.accepted())
        not_applicable(fmt::format("the plugin keeps fewer than {} requests in flight", kRequests));
    }
  }
  StallLimit limit = stall_limit();
  for (bool over = false; !over && !limit.expired();) {
    over = true;
    for (std::size_t i = kRequests; i-- > 0;)
      for (Trial* trial : {&receives[i], &sends[i]}) over = trial->turn() && over;
  }
  for (const auto* trials : {&receives, &sends}) {
    for (const Trial& trial : *trials) {
      if (trial.done()) continue;
      return complain(fmt::format("{}, tested in reverse order, {}", trial.last().call, trial.describe()));
    }
  }
  try {
    flow.check();
  } catch (const Broken& wrong) {
    complain(wrong.what());
  }
}

RULE(TS_10, Should, ApiRange::all(),  //
     .title = "test of NULL returns an error",
     .text = "test of a request that is NULL returns an error and does not crash.",
     .source = "transport/net_socket.cc: ncclInternalError",
     .why = "A mistake of the caller should end in a message, not in a crash of the application.",
     .check = "Calls test with NULL, in ranks that serve no other rule. An error code is expected.") {
  probe([&] {
    const TestOutcome outcome = near_rank().try_test(0);
    expect(!outcome.ok(), fmt::format("{} returned Success, expected an error", outcome.call));
  });
}

RULE_ON(MessageRule, TS_11, Must, ApiRange::all(),  //
        .title = "test never returns ncclInProgress",
        .text = "A test of an operation that is not done returns Success and *done 0, not ncclInProgress (7).",
        .source = "checks.h: NCCLCHECK does not treat 7 as an error",
        .why = "NCCL does not treat 7 as an error and reads *done, which may be unwritten.",
        .check = "Tests a receive 16 times before its send, then sends. A result of 7 breaks the rule.",
        .blind = "Tests that are not done under load; ER-01 checks the codes of all calls of all rules.") {
  Flow flow = make_flow(1, 3000);
  check_codes([&] {
    flow.receive(0);
    traffic().steps(16);
    flow.send(0);
    flow.finish();
  });
}

RULE_ON(
    MessageRule, TS_12, Must, ApiRange::all(),  //
    .title = "test can be called any number of times",
    .text = "Tests of a request that is not done do not allocate memory. [S]: they do not log warnings.",
    .source = "proxy.cc: the progress thread tests without a pause; debug.cc: NCCL_DEBUG=WARN prints warnings only",
    .why =
        "NCCL tests without a pause. If each test needs memory or logs a warning, the memory or the disk is exhausted "
        "within minutes. NCCL does not write lines of the levels INFO and TRACE unless the user asks for them.",
    .check =
        "Tests one receive 100,000 times (1,000,000 with --thorough), or as often as two seconds allow. This may take "
        "less than 300 KiB of memory and log fewer than 100 warnings.",
    .blind = "Requests of sends and flushes.") {
  constexpr std::uint32_t kBatch = 1000;
  constexpr std::uint64_t kBytes = 300 * 1024;
  constexpr double kMaxSeconds = 2;
  Flow flow = make_flow(1, 3000);
  flow.exchange(0);
  Trial receive = Trial::receive(flow.recv_comm(), {{flow.target(0), 0}});
  drive({&receive}, 200);
  if (!receive.accepted()) not_applicable("irecv takes no receive before its send");
  auto logged = [&] {
    constexpr int kWarn = 2;
    std::uint64_t lines = 0;
    for (const LogLine& line : flow.receiver().log())
      if (line.level <= kWarn) lines += line.count;
    return lines;
  };
  const std::uint64_t lines = logged(), bytes = flow.receiver().process().resident_bytes;
  const Stopwatch watch;
  for (int tests = kBatch; tests <= repeated(100'000) && watch.seconds() < kMaxSeconds; tests += kBatch) {
    require_success(receive.request().try_test({.repeats = kBatch - 1}));
    const std::uint64_t bytes_after = flow.receiver().process().resident_bytes, lines_after = logged();
    expect(bytes_after < bytes + kBytes, [&] {
      return fmt::format("rank {}: {} tests of a receive took {} KiB of memory, expected none", flow.receiver().name(),
                         tests, (bytes_after - bytes) / 1024);
    });
    if (lines_after < lines + 100) continue;
    should(false, fmt::format("rank {}: {} tests of a receive logged {} warnings, expected none",
                              flow.receiver().name(), tests, lines_after - lines));
    break;
  }
  Trial send = Trial::send(flow.send_comm(), flow.source(0));
  StallLimit limit = stall_limit();
  while (!drive({&send, &receive}, 100) && !limit.expired()) continue;
  expect(receive.done(), [&] {
    return fmt::format("rank {}: a receive that was tested many times {}", flow.receiver().name(), receive.describe());
  });
}

}  // namespace plugfest::conformance
