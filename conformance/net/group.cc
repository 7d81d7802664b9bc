// XF: grouped receives: widths, tags, sizes. n/a for plugins that take one buffer per receive.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "conformance/net/message.h"
#include "conformance/net/traffic.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/program.h"

namespace plugfest::conformance {
namespace {

using control::Connection;
using control::Endpoint;
using control::Part;

/// A rule on one connection that can receive groups.
class GroupRule : public RuleBody {
 protected:
  /// Connects, and allocates `messages` slots at both ends.
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

  /// The receive slot `index`, posted whole.
  Part slot(std::size_t index, int tag) const { return {to_->buffer(index * kSlot, kSlot), tag}; }
  /// Message `index`, filled: `size` bytes.
  control::Buffer message(std::size_t index, std::size_t size) {
    sender_->rank.fill(from_->slice(index * kSlot, size), seed_ + index);
    return from_->buffer(index * kSlot, size);
  }
  /// Requires that message `index` of `size` bytes lies in slot `place` and that sizes[part] says so.
  void require_arrived(std::size_t index, std::size_t size, std::size_t place, int reported, int tag) {
    const std::string what = fmt::format("message {} ({} bytes, tag {}) in buffer {}", index, size, tag, place);
    require_size(receiver_->rank.name(), reported, size, what);
    require_content(receiver_->rank, to_->slice(place * kSlot, size), seed_ + index, what);
  }
  /// 0..count-1 in an order drawn for this run.
  std::vector<std::size_t> shuffled(std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = count; i-- > 1;) std::swap(order[i], order[random_between(0, i)]);
    return order;
  }
  /// Different for each message, so that a wrong place shows in sizes too.
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
        .title = "groups of any width, changing from call to call",
        .text = "Receives of n buffers, n from 1 to maxRecvs, mix on one connection.",
        .source = "transport/net.cc: recvProxyProgress posts only sub-operations with steps left") {
  connect_slots(1);
  for (const std::uint32_t width : {static_cast<std::uint32_t>(widest_), std::uint32_t{2}}) {
    control::stream(connection_->send, connection_->receive,
                    {.count = 1500, .seed = random()(), .sizes = {1, 64, 1000, 5000}, .group = width});
  }
}

RULE_ON(GroupRule, XF_23, Must, ApiRange::all(),  //
        .title = "tags choose the buffer within a group",
        .text =
            "A send matches the first unfilled buffer of equal tag in the oldest incomplete group; the sends of a "
            "group come in any order.",
        .source = "transport/net_ib.cc: the receiver's slots; tags are ranks") {
  constexpr std::size_t kRounds = 8;
  connect_slots(kRounds * 64);
  const std::size_t width = std::min<std::size_t>(widest_, 64);
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::size_t first = round * width;
    std::vector<Part> parts;
    for (std::size_t i = 0; i < width; ++i) parts.push_back(slot(first + i, static_cast<int>(100 + i)));
    Traffic traffic(stall_timeout());
    const Traffic::Ticket group = traffic.receive(connection_->receive, parts);
    for (const std::size_t i : shuffled(width)) {
      traffic.send(connection_->send, message(first + i, size_of(i)), static_cast<int>(100 + i));
    }
    traffic.finish();
    for (std::size_t i = 0; i < width; ++i) {
      require_arrived(first + i, size_of(i), first + i, traffic.size(group, i), static_cast<int>(100 + i));
    }
  }
}

RULE_ON(GroupRule, XF_24, Must, ApiRange::all(),  //
        .title = "equal tags in a group are filled in array order",
        .text = "The k-th send of a tag goes to the k-th buffer of that tag.",
        .source = "transport/net.cc: a shared comm can carry two operations of one remote rank") {
  constexpr std::size_t kRounds = 4;
  connect_slots(kRounds * 8);
  const std::size_t width = std::min<std::size_t>(widest_, 8);
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::size_t first = round * width;
    // Tags 5 and 6; the first two are always equal.
    std::vector<int> tags = {5, 5};
    while (tags.size() < width) tags.push_back(static_cast<int>(random_between(5, 6)));
    std::vector<Part> parts;
    for (std::size_t i = 0; i < width; ++i) parts.push_back(slot(first + i, tags[i]));
    Traffic traffic(stall_timeout());
    const Traffic::Ticket group = traffic.receive(connection_->receive, parts);
    for (std::size_t i = 0; i < width; ++i) {
      traffic.send(connection_->send, message(first + i, size_of(i)), tags[i]);
    }
    traffic.finish();
    for (std::size_t i = 0; i < width; ++i) {
      require_arrived(first + i, size_of(i), first + i, traffic.size(group, i), tags[i]);
    }
  }
}

RULE_ON(GroupRule, XF_25, Must, ApiRange::all(),  //
        .title = "a send whose group is not current waits and blocks nobody",
        .text =
            "A send with a tag that the oldest incomplete group lacks is deferred (NULL) or queued, does not hold up "
            "sends that match, and arrives when its group becomes current.",
        .source = "transport/net_ib.cc: isend looks through the slots; aws-ofi-nccl #1194, #1242") {
  constexpr std::size_t kRounds = 6;
  connect_slots(kRounds * 3);
  constexpr int kTagA = 21, kTagB = 22, kTagC = 23;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::size_t a = 3 * round, b = a + 1, c = a + 2;
    Traffic traffic(stall_timeout());
    const Traffic::Ticket first = traffic.receive(connection_->receive, {slot(a, kTagA), slot(b, kTagB)});
    const Traffic::Ticket second = traffic.receive(connection_->receive, {slot(c, kTagC)});
    traffic.until_posted(second);

    // The send for the second group, tried for a while with nothing else posted.
    traffic.send(connection_->send, message(c, size_of(c)), kTagC);
    for (int i = 0; i < 32; ++i) traffic.step();
    expect(!traffic.done(first),
           fmt::format("rank {}: the group of tags {} and {} was done although only tag {} was sent",
                       receiver_->rank.name(), kTagA, kTagB, kTagC));
    traffic.send(connection_->send, message(b, size_of(b)), kTagB);
    traffic.send(connection_->send, message(a, size_of(a)), kTagA);
    traffic.finish();
    require_arrived(a, size_of(a), a, traffic.size(first, 0), kTagA);
    require_arrived(b, size_of(b), b, traffic.size(first, 1), kTagB);
    require_arrived(c, size_of(c), c, traffic.size(second, 0), kTagC);
  }
}

RULE_ON(GroupRule, XF_26, Must, ApiRange::all(),  //
        .title = "sizes of a multi-receive",
        .text =
            "A group is done only when all its buffers are filled; test writes sizes[0..n-1] in posted order and "
            "nothing beyond.",
        .source = "transport/net.cc: recvProxyProgress sums all 64 zeroed entries") {
  connect_slots(64 * 4);
  std::size_t next = 0;
  for (const std::size_t width : {std::size_t{2}, std::min<std::size_t>(widest_, 64), std::size_t{2}}) {
    for (const int fill : {0, -77}) {
      std::vector<Part> parts;
      for (std::size_t i = 0; i < width; ++i) parts.push_back(slot(next + i, static_cast<int>(40 + i)));
      Traffic traffic(stall_timeout());
      traffic.test_with({.size_fill = fill});
      const Traffic::Ticket group = traffic.receive(connection_->receive, parts);
      traffic.until_posted(group);
      // All but one buffer filled: not done, however often it is asked.
      const std::vector<std::size_t> order = shuffled(width);
      for (std::size_t i = 0; i + 1 < width; ++i) {
        traffic.send(connection_->send, message(next + order[i], size_of(order[i])), static_cast<int>(40 + order[i]));
      }
      for (int i = 0; i < 64; ++i) traffic.step();
      expect(!traffic.done(group), fmt::format("rank {}: a group of {} buffers was done with {} messages sent",
                                               receiver_->rank.name(), width, width - 1));
      const std::size_t last = order.back();
      traffic.send(connection_->send, message(next + last, size_of(last)), static_cast<int>(40 + last));
      traffic.finish();
      for (std::size_t i = 0; i < width; ++i) {
        require_arrived(next + i, size_of(i), next + i, traffic.size(group, i), static_cast<int>(40 + i));
      }
      const std::vector<int>& sizes = traffic.outcome(group).sizes;
      for (std::size_t i = width; i < sizes.size(); ++i) {
        expect(sizes[i] == fill, fmt::format("rank {}: test of a group of {} wrote sizes[{}] = {}",
                                             receiver_->rank.name(), width, i, sizes[i]));
      }
      next += width;
    }
  }
}

}  // namespace plugfest::conformance
