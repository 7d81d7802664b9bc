// XF rules: grouped receives, not applicable to plugins with maxRecvs 1. FL rules: iflush, irecvConsumed, GPU memory.
#include <fmt/format.h>

#include <algorithm>

#include "conformance/net/script/flow.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

namespace {

constexpr std::size_t kSlot = 2048;
// Differs between messages, so that the reported sizes also reveal a wrong buffer.
constexpr std::size_t size_of(std::size_t index) { return 1000 + 8 * index; }

}  // namespace

RULE_ON(MessageRule, XF_22, Must, ApiRange::all(),  //
        .title = "receives of 1 to maxRecvs buffers mix on one comm",
        .text = "Receives of n buffers, n from 1 to maxRecvs, alternate on one comm.",
        .source = "transport/net.cc: recvProxyProgress posts only sub-operations with steps left",
        .why =
            "NCCL groups as many receives as operations are active, and groups shrink as operations finish. If the "
            "comm needs a constant width, the job hangs or fails.",
        .check = "Streams messages in groups of several widths on one comm.",
        .blind = "Groups whose members come from different senders.",
        .faults = {{"aws/aws-ofi-nccl#1233", "a group never completed when its data used several rails"}}) {
  const Connection connection = connect(sender(), receiver());
  for (const std::size_t width : {widest_group(), std::size_t{2}}) {
    stream(
        connection.send, connection.receive,
        {.count = 1500, .seed = random()(), .sizes = {1, 64, 1000, 5000}, .group = static_cast<std::uint32_t>(width)});
  }
}

RULE_ON(MessageRule, XF_23, Must, ApiRange::all(),  //
        .title = "the tag selects the buffer within a group",
        .text =
            "A send goes to the first unfilled buffer with an equal tag in the oldest incomplete group. The sends of a "
            "group may be posted in any order.",
        .source = "transport/net_ib.cc: slots of the receiver; tags are ranks",
        .why =
            "NCCL finds the buffer of a message by its tag. A message in the wrong buffer of its group is another "
            "rank's data.",
        .check = "Posts groups with distinct tags, sends in random order and compares each buffer.",
        .blind = "Tags of more than 32 bits of meaning: NCCL's are ranks.",
        .faults = {{"aws/aws-ofi-nccl#1237", "the tag was not compared for single receives"},
                   {"aws/aws-ofi-nccl#1340", "an entry of a group that had half arrived was read as tag 0"}}) {
  const std::size_t width = widest_group();
  Flow flow = make_flow(width, kSlot);
  for (int round = 0; round < 8; ++round) {
    flow.receive_group(0, tags_from(100, width));
    for (const std::size_t i : shuffled(width)) flow.send(i, size_of(i), static_cast<int>(100 + i));
    flow.finish();
  }
}

RULE_ON(
    MessageRule, XF_24, Must, ApiRange::all(),  //
    .title = "buffers with equal tags are filled in array order",
    .text = "The k-th send with a tag goes to the k-th buffer with that tag.",
    .source = "transport/net.cc: a shared comm can carry two operations of one remote rank",
    .why =
        "A shared comm can carry two operations of one remote rank, whose tags are equal. In another order each "
        "operation gets the data of the other.",
    .check =
        "Posts groups with two tags in up to 8 buffers and requires the sends of one tag to fill its buffers in order.",
    .blind = "Equal tags in different groups that are outstanding together.") {
  const std::size_t width = std::min<std::size_t>(widest_group(), 8);
  Flow flow = make_flow(width, kSlot);
  for (int round = 0; round < 4; ++round) {
    // Tags 5 and 6; the first two tags are equal.
    std::vector<int> tags = {5, 5};
    while (tags.size() < width) tags.push_back(static_cast<int>(random_between(5, 6)));
    flow.receive_group(0, tags);
    for (std::size_t i = 0; i < width; ++i) flow.send(i, size_of(i), tags[i]);
    flow.finish();
  }
}

RULE_ON(
    MessageRule, XF_25, Must, ApiRange::all(),  //
    .title = "a send for a later group waits and blocks no other send",
    .text =
        "A send whose tag is not in the oldest incomplete group is deferred with NULL or queued. It does not block "
        "sends that match, and it arrives when its group is the oldest.",
    .source = "transport/net_ib.cc: isend searches the slots; aws-ofi-nccl #1194, #1242",
    .why =
        "A sender can be a step ahead for one operation. Its early send must not stop the ones for which the receiver "
        "waits.",
    .check = "Posts two groups, sends for the second one first, then for the first one, and requires all to arrive.",
    .blind = "More than two groups in flight.",
    .faults = {{"aws/aws-ofi-nccl#1194", "eager sends were matched to the wrong group"},
               {"aws/aws-ofi-nccl#1343", "an eager message was matched with a receive of another tag"}}) {
  constexpr int kTagA = 21, kTagB = 22, kTagC = 23;
  widest_group();
  Flow flow = make_flow(3, kSlot);
  for (int round = 0; round < 6; ++round) {
    const Flow::Ticket first = flow.receive_group(0, {kTagA, kTagB});
    flow.receive_group(2, {kTagC});
    traffic().post_receives();

    // For some rounds only the send for the second group is tried.
    flow.send(2, size_of(2), kTagC);
    traffic().steps(32);
    expect(
        !traffic().done(first),
        fmt::format("rank {}: test completed the group of tags {} and {} after a send with tag {}, expected not done",
                    flow.receiver().name(), kTagA, kTagB, kTagC));
    flow.send(1, size_of(1), kTagB);
    flow.send(0, size_of(0), kTagA);
    flow.finish();
  }
}

RULE_ON(
    MessageRule, XF_26, Must, ApiRange::all(),  //
    .title = "a group reports one size per buffer",
    .text =
        "A group is done only when all its buffers are filled. test writes sizes[0..n-1] in posted order and no other "
        "entry.",
    .source = "transport/net.cc: recvProxyProgress sums all 64 zeroed entries",
    .why = "NCCL sums the sizes of a group to decide about the flush of GPU memory, and gives each operation its size.",
    .check =
        "Completes groups of several widths in random order, checks that they are not done one send early, and "
        "compares sizes and contents.",
    .blind = "Sizes of more than 2048 bytes.",
    .faults = {{"aws/aws-ofi-nccl#1211", "sizes of a group were its total divided by the number of buffers"},
               {"aws/aws-ofi-nccl#1346", "a send that had been queued reported size 0 after a group"}}) {
  const std::size_t widest = widest_group();
  Flow flow = make_flow(widest, kSlot);
  for (const std::size_t width : {std::size_t{2}, widest, std::size_t{2}}) {
    for (const int fill : {0, -77}) {
      traffic().test_with({.size_fill = fill});
      const Flow::Ticket group = flow.receive_group(0, tags_from(40, width));
      traffic().post_receives();
      // With one buffer unfilled the group is not done, regardless of the number of tests.
      const std::vector<std::size_t> order = shuffled(width);
      auto send = [&](std::size_t i) { flow.send(i, size_of(i), static_cast<int>(40 + i)); };
      for (std::size_t i = 0; i + 1 < width; ++i) send(order[i]);
      traffic().steps(64);
      expect(!traffic().done(group),
             fmt::format("rank {}: test completed a group of {} buffers after {}, expected not done",
                         flow.receiver().name(), width, counted(width - 1, "send")));
      send(order.back());
      flow.finish();
      const std::vector<int>& sizes = traffic().outcome(group).sizes;
      for (std::size_t i = 0; i < width; ++i)
        require_size(flow.receiver().name(), sizes[i], size_of(i), fmt::format("message {} (tag {})", i, 40 + i));
      for (std::size_t i = width; i < sizes.size(); ++i) {
        expect(sizes[i] == fill, [&] {
          return fmt::format("rank {}: test of a group of {} buffers wrote sizes[{}] = {}, expected no write",
                             flow.receiver().name(), width, i, sizes[i]);
        });
      }
    }
  }
  stream(flow.send_comm(), flow.recv_comm(),
         {.count = 400,
          .seed = random()(),
          .sizes = {1, 64, 1000},
          .group = static_cast<std::uint32_t>(widest),
          .check_sizes = true});
}

namespace {

// Base of rules about iflush, which NCCL calls for plugins that receive into GPU memory.
class FlushRule : public MessageRule {
 protected:
  bool has_cuda_bit() {
    constexpr int kCuda = 2;
    Endpoint endpoint = receiver();
    return (endpoint.rank.properties(endpoint.device).ptr_support & kCuda) != 0;
  }
  void require_cuda_bit() {
    if (!has_cuda_bit()) not_applicable("ptrSupport has no CUDA bit: NCCL does not flush host memory");
  }
  // Calls iflush for a slot. Empty: no completion to wait for. Errors: `NotApplicable` when the first call returns an
  // error, since NCCL flushes GPU memory only, and this memory is the host's.
  Request flush(Flow& flow, std::size_t slot) {
    const PointerOutcome outcome = flow.recv_comm().try_iflush({{flow.target(slot), 0}});
    if (!outcome.ok() && !flushed_) {
      not_applicable(fmt::format("{} returned {} for host memory, which NCCL does not flush", outcome.call,
                                 result_name(outcome.code)));
    }
    flushed_ = true;
    require_success(outcome);
    return flow.recv_comm().request(outcome.value);
  }

 private:
  bool flushed_ = false;
};

}  // namespace

RULE_ON(FlushRule, FL_02, Must, ApiRange::all(),  //
        .title = "iflush does not read *request",
        .text = "*request is NULL when iflush is called, and stays NULL if there is nothing to wait for.",
        .source = "transport/net.cc: recvProxyProgress",
        .why = "NCCL passes a NULL request. A plugin that dereferences it crashes the process.",
        .check =
            "Completes a receive and flushes it four times with *request NULL. Each flush must succeed, and its "
            "request, if there is one, must complete.",
        .blind = "GPU memory: the flushed memory is the host's.",
        .faults = {{"google/nccl-plugin-gpudirecttcpx", "iflush used the request that *request pointed to"}}) {
  require_cuda_bit();
  Flow flow = make_flow(1, 3000);
  for (int round = 0; round < 4; ++round) {
    flow.exchange(0);
    if (const Request request = flush(flow, 0)) request.wait({.done = 1, .sizes = false});
  }
}

RULE_ON(FlushRule, FL_04, Must, ApiRange::all(),  //
        .title = "flushes and receives are in flight together",
        .text =
            "A comm has up to 8 flushes and 8 receives in flight. Flushes are tested in the order of posting, with "
            "sizes NULL and *done 1 before the call.",
        .source = "transport/net.cc: third phase of recvProxyProgress",
        .why = "If a comm cannot have both in flight, an error ends the communicator, or the GPU reads old bytes.",
        .check =
            "Completes 8 receives, flushes one, posts 8 more, flushes the first 8, waits for the flushes in order with "
            "*done preset to 1, then sends to the receives and compares every byte.",
        .blind = "GPU memory: whether a flush makes data visible is not seen.") {
  require_cuda_bit();
  constexpr std::size_t kSlots = 8;
  Flow flow = make_flow(2 * kSlots, 3000);
  for (std::size_t i = 0; i < kSlots; ++i) flow.exchange(i);
  if (control::Request request = flush(flow, 0)) request.wait({.done = 1, .sizes = false});
  for (std::size_t i = 0; i < kSlots; ++i) flow.receive(kSlots + i);
  traffic().post_receives();
  std::vector<Request> flushes;
  for (std::size_t i = 0; i < kSlots; ++i)
    if (const Request request = flush(flow, i)) flushes.push_back(request);
  for (Request& request : flushes) request.wait({.done = 1, .sizes = false});
  for (std::size_t i = 0; i < kSlots; ++i) flow.send(kSlots + i);
  flow.finish();
}

RULE_ON(FlushRule, FL_06, Should, ApiRange::all(),  //
        .title = "iflush of host memory does not crash",
        .text = "A plugin without the CUDA bit may refuse iflush, which NCCL does not call.",
        .source = "transport/net.cc: useGdr",
        .why = "A call by mistake should end in an error code. A crash ends the application.",
        .check = "Completes a receive and calls iflush for it. Any result code is accepted.") {
  if (has_cuda_bit() || !receiver().rank.has_function("iflush"))
    not_applicable("ptrSupport has the CUDA bit, or iflush is NULL");
  probe([&] {
    Flow flow = make_flow(1, 3000);
    flow.exchange(0);
    flow.recv_comm().try_iflush({{flow.target(0), 0}});
  });
}

RULE_ON(MessageRule, FL_07, Must, ApiRange::all(),  //
        .title = "irecvConsumed accepts completed requests",
        .text =
            "If irecvConsumed is not NULL, NCCL calls it for each completed receive, with the old request pointer and "
            "the buffer count of the newest receive. Newer receives are in flight then and may reuse the pointer.",
        .source = "transport/net.cc: fourth phase of recvProxyProgress, recvRequestsCache",
        .why =
            "The request is old, and the count belongs to another receive. A plugin that looks up the request or "
            "compares the counts returns an error, which ends the communicator.",
        .check =
            "Completes a receive, posts a newer one of another width, calls irecvConsumed with the old request, and "
            "requires the newer one to complete.",
        .blind = "Several consumed receives at once.") {
  if (!receiver().rank.has_function("irecvConsumed")) not_applicable("irecvConsumed is NULL");
  const std::size_t group = std::min<std::size_t>(max_recvs(), 4);
  Flow flow = make_flow(1 + group, 3000);
  for (int round = 0; round < 8; ++round) {
    const Flow::Ticket first = flow.receive(0);
    flow.send(0);
    flow.finish();
    const std::uint64_t old = traffic().request(first).value();

    // A newer receive of another width is in flight during the irecvConsumed of the old one.
    const std::vector<int> tags = tags_from(0, round % 2 == 0 ? 1 : group);
    flow.receive_group(1, tags);
    traffic().post_receives();
    require_success(flow.recv_comm().try_consumed(static_cast<int>(tags.size()), old));
    for (const int tag : tags) flow.send(1 + static_cast<std::size_t>(tag), Flow::kWhole, tag);
    flow.finish();
  }
}

RULE(
    MR_02, Must, ApiRange::all(),  //
    .title = "GPU memory registers and has a handle",
    .text = "With the CUDA bit, regMr accepts memory of cudaMalloc and of cuMem, and parts of it, and stores a handle.",
    .source = "transport/net.cc: netRegisterBuffer takes NULL as failure",
    .why = "Without GPU memory NCCL copies every message through host memory, or fails to connect.",
    .needs = "a CUDA GPU") {}

RULE(MR_17, Must, ApiRange::all(),  //
     .title = "a DMA-BUF registers, and its descriptor may be closed",
     .text = "regMrDmaBuf does not use the descriptor after it has returned.",
     .source = "transport/net.cc: sendProxyConnect closes it",
     .why = "NCCL closes the descriptor at once. A later use of its number reaches another file.",
     .needs = "a CUDA GPU") {}

RULE(FL_01, Must, ApiRange::all(),  //
     .title = "iflush makes received data visible to the GPU",
     .text = "When iflush stores NULL, or its request is done, the GPU reads what the receive delivered.",
     .source = "transport/net.cc: second phase of recvProxyProgress",
     .why = "Otherwise, the GPU reads old bytes, and no error is reported.", .needs = "a CUDA GPU") {}

RULE(FL_03, Must, ApiRange::all(),  //
     .title = "iflush accepts groups with empty messages",
     .text = "iflush gets the sizes of all buffers of a group, of which some may be 0.",
     .source = "transport/net.cc: second phase of recvProxyProgress",
     .why = "An error ends the communicator; a flush of the wrong buffer leaves old bytes.", .needs = "a CUDA GPU") {}

RULE(FL_05, Must, ApiRange::all(),  //
     .title = "iflush does not change data",
     .text = "The memory of a receive holds the same bytes before and after iflush.",
     .source = "transport/net_ib.cc reads one word by RDMA",
     .why = "A flush that writes corrupts the message that it should make visible.", .needs = "a CUDA GPU") {}

RULE(FL_08, Must, ApiRange::from(7),  //
     .title = "getDeviceMr stores a handle",
     .text = "For device types other than HOST, getDeviceMr stores the handle that the GPU uses.",
     .source = "transport/net.cc: recvProxyConnect",
     .why = "The GPU uses the handle itself; NULL or a stale one ends its kernel.", .needs = "a CUDA GPU") {}

RULE(TH_05, Should, ApiRange::all(),  //
     .title = "calls keep the thread's CUDA context",
     .text = "The current CUDA device and context of the calling thread are the same after each call.",
     .source = "proxy.cc: the progress thread sets its device once",
     .why = "Otherwise, NCCL's next CUDA call would go to another GPU.", .needs = "a CUDA GPU") {}

}  // namespace plugfest::conformance
