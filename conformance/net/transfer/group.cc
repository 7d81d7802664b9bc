// XF rules: grouped receives. Not applicable to plugins with maxRecvs 1.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "conformance/net/script/message.h"
#include "conformance/net/script/traffic.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {
namespace {

using control::Connection;
using control::Endpoint;
using control::Part;

/// Base of rules on one connection that receives groups. Both endpoints have memory of `kSlot` bytes per message.
class GroupRule : public RuleBody {
 protected:
  /// Connects and allocates memory for `messages` messages at both endpoints.
  void connect_slots(std::size_t messages) {
    sender_ = near_endpoint();
    receiver_ = far_endpoint();
    const int max_recvs = receiver_->rank.properties(receiver_->device).max_recvs;
    if (max_recvs < 2) not_applicable(fmt::format("maxRecvs is {}: no grouped receives", max_recvs));
    widest_ = static_cast<std::size_t>(max_recvs);
    connection_ = control::connect(*sender_, *receiver_);
    from_ = allocate(sender_->rank, connection_->send, messages * kSlot);
    to_ = allocate(receiver_->rank, connection_->receive, messages * kSlot);
    seed_ = random()();
  }

  /// All of receive slot `index`, as a part of a group.
  Part slot(std::size_t index, int tag) const { return {to_->buffer(index * kSlot, kSlot), tag}; }
  /// Fills message `index` of `size` bytes.
  control::Buffer message(std::size_t index, std::size_t size) {
    sender_->rank.fill(from_->slice(index * kSlot, size), seed_ + index);
    return from_->buffer(index * kSlot, size);
  }
  static std::string describe(std::size_t index, std::size_t size, int tag) {
    return fmt::format("message {} ({}, tag {})", index, counted(size, "byte"), tag);
  }
  /// Requires that message `index` of `size` bytes is in receive slot `index`.
  void require_arrived(std::size_t index, std::size_t size, int tag) {
    require_content(receiver_->rank, to_->slice(index * kSlot, size), seed_ + index, describe(index, size, tag));
  }
  /// 0 to count-1 in random order.
  std::vector<std::size_t> shuffled(std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = count; i-- > 1;) std::swap(order[i], order[random_between(0, i)]);
    return order;
  }
  /// Differs between messages, so that the reported sizes show a wrong buffer too.
  static std::size_t size_of(std::size_t index) { return 1000 + 8 * index; }

  static constexpr std::size_t kSlot = 2048;
  std::optional<Endpoint> sender_, receiver_;
  std::optional<Connection> connection_;
  std::optional<Registered> from_, to_;
  std::size_t widest_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace

RULE_ON(GroupRule, XF_22, Must, ApiRange::all(),  //
        .title = "receives of 1 to maxRecvs buffers mix on one comm",
        .text = "Receives of n buffers, n from 1 to maxRecvs, alternate on one comm.",
        .source = "transport/net.cc: recvProxyProgress posts only sub-operations with steps left") {
  connect_slots(1);
  for (const std::uint32_t width : {static_cast<std::uint32_t>(widest_), std::uint32_t{2}}) {
    control::stream(connection_->send, connection_->receive,
                    {.count = 1500, .seed = random()(), .sizes = {1, 64, 1000, 5000}, .group = width});
  }
}

RULE_ON(GroupRule, XF_23, Must, ApiRange::all(),  //
        .title = "the tag selects the buffer within a group",
        .text =
            "A send goes to the first unfilled buffer with an equal tag in the oldest incomplete group. The sends of a "
            "group may be posted in any order.",
        .source = "transport/net_ib.cc: slots of the receiver; tags are ranks") {
  constexpr std::size_t kRounds = 8;
  connect_slots(kRounds * 64);
  const std::size_t width = std::min<std::size_t>(widest_, 64);
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::size_t first = round * width;
    std::vector<Part> parts;
    for (std::size_t i = 0; i < width; ++i) parts.push_back(slot(first + i, static_cast<int>(100 + i)));
    Traffic traffic(stall_limit());
    traffic.receive(connection_->receive, parts);
    for (const std::size_t i : shuffled(width)) {
      traffic.send(connection_->send, message(first + i, size_of(i)), static_cast<int>(100 + i));
    }
    traffic.finish();
    for (std::size_t i = 0; i < width; ++i) {
      require_arrived(first + i, size_of(i), static_cast<int>(100 + i));
    }
  }
}

RULE_ON(GroupRule, XF_24, Must, ApiRange::all(),  //
        .title = "buffers with equal tags are filled in array order",
        .text = "The k-th send with a tag goes to the k-th buffer with that tag.",
        .source = "transport/net.cc: a shared comm can carry two operations of one remote rank") {
  constexpr std::size_t kRounds = 4;
  connect_slots(kRounds * 8);
  const std::size_t width = std::min<std::size_t>(widest_, 8);
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::size_t first = round * width;
    // Tags 5 and 6; the first two tags are equal.
    std::vector<int> tags = {5, 5};
    while (tags.size() < width) tags.push_back(static_cast<int>(random_between(5, 6)));
    std::vector<Part> parts;
    for (std::size_t i = 0; i < width; ++i) parts.push_back(slot(first + i, tags[i]));
    Traffic traffic(stall_limit());
    traffic.receive(connection_->receive, parts);
    for (std::size_t i = 0; i < width; ++i) {
      traffic.send(connection_->send, message(first + i, size_of(i)), tags[i]);
    }
    traffic.finish();
    for (std::size_t i = 0; i < width; ++i) {
      require_arrived(first + i, size_of(i), tags[i]);
    }
  }
}

RULE_ON(GroupRule, XF_25, Must, ApiRange::all(),  //
        .title = "a send for a later group waits and blocks no other send",
        .text =
            "A send whose tag is not in the oldest incomplete group is deferred with NULL or queued. It does not block "
            "sends that match, and it arrives when its group is the oldest.",
        .source = "transport/net_ib.cc: isend searches the slots; aws-ofi-nccl #1194, #1242") {
  constexpr std::size_t kRounds = 6;
  connect_slots(kRounds * 3);
  constexpr int kTagA = 21, kTagB = 22, kTagC = 23;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::size_t a = 3 * round, b = a + 1, c = a + 2;
    Traffic traffic(stall_limit());
    const Traffic::Ticket first = traffic.receive(connection_->receive, {slot(a, kTagA), slot(b, kTagB)});
    traffic.receive(connection_->receive, {slot(c, kTagC)});
    traffic.post_receives();

    // The send for the second group is tried alone for some rounds.
    traffic.send(connection_->send, message(c, size_of(c)), kTagC);
    for (int i = 0; i < 32; ++i) traffic.step();
    expect(
        !traffic.done(first),
        fmt::format("rank {}: test completed the group of tags {} and {} after a send with tag {}, expected not done",
                    receiver_->rank.name(), kTagA, kTagB, kTagC));
    traffic.send(connection_->send, message(b, size_of(b)), kTagB);
    traffic.send(connection_->send, message(a, size_of(a)), kTagA);
    traffic.finish();
    require_arrived(a, size_of(a), kTagA);
    require_arrived(b, size_of(b), kTagB);
    require_arrived(c, size_of(c), kTagC);
  }
}

RULE_ON(GroupRule, XF_26, Must, ApiRange::all(),  //
        .title = "a group reports one size per buffer",
        .text =
            "A group is done only when all its buffers are filled. test writes sizes[0..n-1] in posted order and no "
            "other entry.",
        .source = "transport/net.cc: recvProxyProgress sums all 64 zeroed entries") {
  connect_slots(64 * 4);
  std::size_t next = 0;
  for (const std::size_t width : {std::size_t{2}, std::min<std::size_t>(widest_, 64), std::size_t{2}}) {
    for (const int fill : {0, -77}) {
      std::vector<Part> parts;
      for (std::size_t i = 0; i < width; ++i) parts.push_back(slot(next + i, static_cast<int>(40 + i)));
      Traffic traffic(stall_limit());
      traffic.test_with({.size_fill = fill});
      const Traffic::Ticket group = traffic.receive(connection_->receive, parts);
      traffic.post_receives();
      // With one buffer unfilled the group is not done, however often it is tested.
      const std::vector<std::size_t> order = shuffled(width);
      for (std::size_t i = 0; i + 1 < width; ++i) {
        traffic.send(connection_->send, message(next + order[i], size_of(order[i])), static_cast<int>(40 + order[i]));
      }
      for (int i = 0; i < 64; ++i) traffic.step();
      expect(!traffic.done(group),
             fmt::format("rank {}: test completed a group of {} buffers after {}, expected not done",
                         receiver_->rank.name(), width, counted(width - 1, "send")));
      const std::size_t last = order.back();
      traffic.send(connection_->send, message(next + last, size_of(last)), static_cast<int>(40 + last));
      traffic.finish();
      for (std::size_t i = 0; i < width; ++i) {
        const int tag = static_cast<int>(40 + i);
        require_size(receiver_->rank.name(), traffic.size(group, i), size_of(i), describe(next + i, size_of(i), tag));
        require_arrived(next + i, size_of(i), tag);
      }
      const std::vector<int>& sizes = traffic.outcome(group).sizes;
      for (std::size_t i = width; i < sizes.size(); ++i) {
        expect(sizes[i] == fill,
               fmt::format("rank {}: test of a group of {} buffers wrote sizes[{}] = {}, expected no write",
                           receiver_->rank.name(), width, i, sizes[i]));
      }
      next += width;
    }
  }
}

}  // namespace plugfest::conformance
