// XF rules: grouped receives, not applicable to plugins with maxRecvs 1.
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
        .blind = "Tags with many bits; XF-28 uses them.",
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
    for (const int fill : {0, kUnwrittenSize}) {
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
        judge_sizes([&] {
          require_size(flow.receiver().name(), sizes[i], size_of(i), fmt::format("message {} (tag {})", i, 40 + i));
        });
      for (std::size_t i = width; i < sizes.size(); ++i) {
        expect(sizes[i] == fill, [&] {
          return fmt::format("rank {}: test of a group of {} buffers wrote sizes[{}] = {}, expected no write",
                             flow.receiver().name(), width, i, sizes[i]);
        });
      }
    }
  }
  judge_sizes([&] {
    stream(flow.send_comm(), flow.recv_comm(),
           {.count = 400,
            .seed = random()(),
            .sizes = {1, 64, 1000},
            .group = static_cast<std::uint32_t>(widest),
            .check_sizes = true});
  });
}

}  // namespace plugfest::conformance
