// XF rules: content, order, sizes and number of single messages.
#include <fmt/format.h>

#include <algorithm>

#include "conformance/net/script/flow.h"
#include "fabric/system/text.h"
#include "harness/control/call.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

RULE_ON(
    MessageRule, XF_01, Must, ApiRange::all(),  //
    .title = "payloads of every size arrive unchanged",
    .text =
        "The receive buffer contains the bytes that isend sent, for every size. [S] above 4 MiB if the run has a GPU "
        "and the device does not support its memory: NCCL then passes its own buffers only.",
    .source = "transport/net.cc: NCCL_BUFFSIZE, by default 4 MiB, is the size of NCCL's own buffers",
    .why = "Nothing above the plugin checks the data: a wrong byte is a wrong result.",
    .check =
        "Sends one message each of 23 sizes from 1 byte to 16 MiB, around the limits of protocols and packets, and "
        "compares every byte.",
    .blind = "Sizes in between, messages above 16 MiB, and bugs that need several messages in flight.",
    .faults = {{"NVIDIA/nccl#2001", "reductions over a plugin had wrong results at some sizes"}}) {
  Connection connection = connect(sender(), receiver());
  constexpr std::size_t kKi = 1024, kMi = 1024 * 1024;
  constexpr std::size_t kSizes[] = {
      1,         3,      7,    8,      63,      64,           65,       127,          128,
      129,       4095,   4096, 4097,   8 * kKi, 64 * kKi - 1, 64 * kKi, 64 * kKi + 1, 128 * kKi,
      512 * kKi, 614400, kMi,  4 * kMi};
  for (const std::size_t size : kSizes) deliver(sender(), receiver(), connection, {.size = size, .seed = random()()});
  require_or_probe(may_transfer_gpu_memory(), [&] { connect_and_deliver(sender(), receiver(), random()(), 16 * kMi); });
}

RULE_ON(
    MessageRule, XF_05, Must, ApiRange::all(),  //
    .title = "either side may post first",
    .text =
        "An isend before its irecv is accepted, or deferred with NULL. An irecv before its isend is accepted. Both "
        "complete once the other side has posted.",
    .source = "transport/net.cc: the two proxies post independently",
    .why = "The two proxies post independently: either can be ahead by any time.",
    .check = "Calls isend and test 64 times before the receive is posted, then the opposite, and compares contents.",
    .blind = "More than one message ahead; XF-07 posts more.",
    .faults = {
        {"aws/aws-ofi-nccl#756", "a message sent before its receive was posted never completed with one provider"}}) {
  Flow flow = make_flow(2, 5000);
  // The send comes first: neither isend nor test may fail or block, however often NCCL calls them.
  flow.send(0);
  traffic().steps(64);
  flow.receive(0);
  flow.finish();

  // The receive comes first: it must not be done before the send.
  const Flow::Ticket waiting = flow.receive(1);
  traffic().steps(64);
  expect(
      !traffic().done(waiting),
      fmt::format("rank {}: test wrote *done = 1 for a receive before its send, expected 0", flow.receiver().name()));
  flow.send(1);
  flow.finish();
}

RULE_ON(
    MessageRule, XF_06, Must, ApiRange::all(),  //
    .title = "messages arrive in the order of sending",
    .text = "For receives of one buffer, the k-th accepted isend goes to the k-th accepted irecv of the connection.",
    .source = "transport/net.cc identifies steps by counting",
    .why = "NCCL knows a message only by its place in the sequence. Swapped messages are swapped data.",
    .check = "Streams 5000 messages of seven sizes with 8 in flight and compares each with its place in the sequence.",
    .blind = "Wraps of counters beyond 5000 messages, which SK-01 finds, and reordering that needs a slower network.",
    .faults = {
        {"aws/aws-ofi-nccl#1277", "a sequence number of 10 bits wrapped after 1024 messages, and the receiver hung"}}) {
  Connection connection = connect(sender(), receiver());
  stream(connection.send, connection.receive,
         {.count = 5000,
          .seed = random()(),
          .sizes = {1, 3, 64, 1000, 1000, 4096, 4097, 20000},
          .posted_size = 20000,
          .window = 8});
}

RULE_ON(
    MessageRule, XF_07, Must, ApiRange::all(),  //
    .title = "all requests that NCCL posts can be in flight",
    .text =
        "The plugin accepts, or defers with NULL, at least 8 receives of maxRecvs buffers each and 8 x maxRecvs sends. "
        "It refuses none of them with an error. [S]: as many as the version's NCCL_NET_MAX_REQUESTS (v6: 8, later: "
        "32).",
    .source = "transport/net.cc: NCCL_STEPS <= NCCL_NET_MAX_REQUESTS; the header's comment on requests",
    .why =
        "NCCL posts up to 8 steps ahead, for each of maxRecvs operations. An error at the ninth request ends the job.",
    .check =
        "Posts receives and sends until the version's limit is reached or the plugin defers, then requires every "
        "message to arrive in its buffer.",
    .blind = "Limits that only several busy connections reach together.",
    .faults = {{"google/nccl-fastsocket", "the seventeenth request is an error"},
               {"google/nccl-plugin-gpudirecttcpx", "the seventeenth request is an error"}}) {
  const std::size_t group = max_recvs(), limit = api() == 6 ? 8 : 32;
  constexpr std::size_t kMust = 8;
  Flow flow = make_flow(limit * group, 64);
  traffic().limit_in_flight(limit * group);

  // An error before `must` operations are in flight breaks the rule; an error before `most` breaks its [S] part. NCCL
  // does not use a connection after an error.
  auto post = [&](const Comm& comm, std::size_t must, std::size_t most) {
    try {
      traffic().post(comm);
    } catch (const CallFailed& failure) {
      const std::size_t in_flight = traffic().in_flight(comm);
      const std::string message =
          fmt::format("{} with {} in flight, expected at least {} to be accepted or deferred with NULL", failure.what(),
                      in_flight, in_flight < must ? must : most);
      expect(in_flight >= must, message);
      should(false, message);
      return false;
    }
    observe(fmt::format("rank {}: {} in flight", comm.rank_name(), traffic().in_flight(comm)));
    return true;
  };
  for (std::size_t i = 0; i < limit; ++i) flow.receive_group(i * group, tags_from(0, group));
  if (!post(flow.recv_comm(), kMust, limit)) return;
  for (std::size_t i = 0; i < limit * group; ++i) flow.send(i, Flow::kWhole, static_cast<int>(i % group));
  if (!post(flow.send_comm(), kMust * group, limit * group)) return;
  flow.finish();
}

RULE_ON(
    MessageRule, XF_09, Must, ApiRange::all(),  //
    .title = "test reports the size that was sent",
    .text =
        "A send may be smaller than the posted receive. test reports the sent size on both sides, for sends up to v8: "
        "later releases of NCCL do not read it. A size of a send that is not written is a warning, and so is a wrong "
        "one unless the device has the CUDA bit. A wrong size of a receive is a warning if the run has a GPU and the "
        "device does not support its memory.",
    .source = "net.h: test; transport/net.cc: recvProxyProgress sums sizes to decide about the flush",
    .why =
        "NCCL posts receives of full buffers and learns from test whether anything has arrived in GPU memory, which "
        "it then flushes.",
    .check =
        "Sends 1 to 65536 bytes into receives of 65536 bytes, alone and in a stream, then posts 24 receives of "
        "unequal sizes on each of three comms at once, and compares the sizes of receives, and of single sends.",
    .blind = "Sizes of groups; XF-26 checks them.",
    .faults = {{"NVIDIA/nccl#309", "the meaning of the size in test was unclear"},
               {"aws/aws-ofi-nccl#1346", "a send that had been queued reported size 0 after a group"},
               {"aws/aws-ofi-nccl#442", "the size of a send came from a completion that has none"}}) {
  constexpr std::size_t kPosted = 65536;
  Flow flow = make_flow(1, kPosted);
  for (const std::size_t size : {1u, 8u, 1000u, 4096u, 4097u, 65535u, 65536u}) {
    const Flow::Ticket receive = flow.receive(0), send = flow.send(0, size);
    flow.finish();
    const std::string what = fmt::format("a message of {} into a receive of {}", counted(size, "byte"), kPosted);
    judge_sizes([&] { require_size(flow.receiver().name(), traffic().size(receive), size, what); });
    judge_sent_size(traffic().size(send), size, what);
  }
  judge_sizes([&] {
    stream(
        flow.send_comm(), flow.recv_comm(),
        {.count = 400, .seed = random()(), .sizes = {1, 64, 5000, 20000}, .posted_size = 20000, .check_sizes = true});
  });

  constexpr std::size_t kComms = 3, kReceives = 24;
  std::vector<Flow> flows;
  for (std::size_t comm = 0; comm < kComms; ++comm) flows.push_back(make_flow(kReceives, kPosted));
  const auto posted_size = [](std::size_t i) { return kPosted - 1024 * i; };
  const auto sent_size = [&](std::size_t comm, std::size_t i) { return posted_size(i) - 8 * (comm + 1); };
  std::vector<std::vector<Flow::Ticket>> receives(kComms);
  for (std::size_t i = 0; i < kReceives; ++i)
    for (std::size_t comm = 0; comm < kComms; ++comm) receives[comm].push_back(flows[comm].receive(i, posted_size(i)));
  for (std::size_t i = 0; i < kReceives; ++i)
    for (std::size_t comm = 0; comm < kComms; ++comm) flows[comm].send(i, sent_size(comm, i));
  for (Flow& opened : flows) opened.finish();
  judge_sizes([&] {
    for (std::size_t comm = 0; comm < kComms; ++comm) {
      for (std::size_t i = 0; i < kReceives; ++i) {
        const std::size_t size = sent_size(comm, i);
        require_size(flow.receiver().name(), traffic().size(receives[comm][i]), size,
                     fmt::format("a message of {} on one of {} comms", counted(size, "byte"), kComms));
      }
    }
  });
}

RULE_ON(
    MessageRule, XF_12, Must, ApiRange::all(),  //
    .title = "zero-byte messages are delivered",
    .text =
        "isend and irecv accept zero-byte messages. They keep their place in the order and complete on both sides with "
        "size 0, even when the receive was posted with size 0.",
    .source =
        "transport/net.cc: a p2p operation of 0 bytes is one step; NVIDIA/nccl #345: messages of 0 bytes are supported",
    .why =
        "For NCCL a point-to-point operation of 0 bytes is one step like others. If a plugin drops or refuses it, each "
        "later message arrives in the place of another one.",
    .check = "Sends empty messages alone, mixed with others, and in groups, into receives of 0 and of more bytes.",
    .blind = "Empty messages with invalid pointers; XF-13 checks them.") {
  Connection connection = connect(sender(), receiver());
  for (const std::size_t posted : {std::size_t{0}, std::size_t{4096}}) {
    const int reported = deliver(sender(), receiver(), connection, {.seed = random()(), .posted_size = posted});
    judge_sizes([&] {
      require_size(receiver().rank.name(), reported, 0,
                   fmt::format("a message of 0 bytes into a receive of {}", posted));
    });
  }
  const auto group = static_cast<std::uint32_t>(std::min<std::size_t>(max_recvs(), 8));
  const StreamPlan plans[] = {{.count = 400, .sizes = {0, 0, 1, 64, 5000}, .posted_size = 0},
                              {.count = 400, .sizes = {0, 0, 1, 64, 5000}, .posted_size = 5000},
                              {.count = 400, .sizes = {0, 0, 1, 64}, .posted_size = 64, .group = group}};
  for (StreamPlan plan : plans) {
    plan.seed = random()();
    stream(connection.send, connection.receive, plan);
  }
}

RULE_ON(
    MessageRule, XF_14, Must, ApiRange::all(),  //
    .title = "argument arrays are copied before the call returns",
    .text =
        "data, sizes, tags, mhandles and phandles are temporary arrays on NCCL's stack: the plugin does not read them "
        "after the call.",
    .source = "transport/net.cc: recvProxyProgress",
    .why =
        "The arrays are on the stack of NCCL's progress loop, and the next call overwrites them. A plugin that reads "
        "them later transfers other memory.",
    .check =
        "Posts receives, tests them, and sends only then; the rank overwrites the arrays of each call before the next.",
    .blind = "A plugin that reads the arrays again within the same call.") {
  constexpr std::size_t kReceives = 4;
  const std::size_t group = std::min<std::size_t>(max_recvs(), 4);
  Flow flow = make_flow(kReceives * group, 3000);
  // The receives are posted and tested before any message is sent. Each call in a rank overwrites the argument arrays
  // of earlier calls, so a plugin that reads them later finds wrong values.
  for (std::size_t i = 0; i < kReceives; ++i) flow.receive_group(i * group, tags_from(0, group));
  traffic().steps(32);
  for (std::size_t i = 0; i < kReceives * group; ++i) flow.send(i, Flow::kWhole, static_cast<int>(i % group));
  flow.finish();
}

}  // namespace plugfest::conformance
