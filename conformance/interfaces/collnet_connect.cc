// Rules about communicators of CollNet: connect, registrations, close.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "conformance/interfaces/collnet_group.h"

namespace plugfest::conformance {

RULE_ON(
    CollNetRule, CO_03, Must, ApiRange::coll_net(),  //
    .title = "connect joins all ranks",
    .text =
        "connect is a blocking collective: it waits for ranks that call it later, succeeds on all of them and stores a "
        "collComm. If a rank has ended, it returns an error on the others.",
    .source = "transport/coll_net.cc: sharedConnect; the service thread calls it without a time limit",
    .why =
        "NCCL gives up CollNet if connect fails on a rank, and has no time limit of its own: a connect that waits for "
        "a rank that has ended hangs the job.",
    .check =
        "Connects up to 8 ranks, the last one 100 ms after the others, and reduces a vector. Then connects three "
        "new ranks, of which one is killed before; that part is a warning.",
    .blind = "Delays of more than 100 ms, and ranks that end during connect.", .ranks = 3, .most_ranks = 8) {
  const std::vector<Rank> ranks = all_ranks();
  Joining joining(ranks);
  joining.start_all(std::chrono::milliseconds(100));
  const std::vector<Member> members = members_of(joining.get_all());
  require_reduction(members, usual_reduction(members), 1, random()());
  probe(
      [&] {
        on_new_ranks([&] {
          // Ranks that poll in connect until its limit would take the processors from each other.
          std::vector<Rank> three;
          for (std::size_t i = 0; i < 3; ++i) three.push_back(rank_with_devices(i));
          Joining incomplete(three);
          three[2].kill();
          for (std::size_t i = 0; i < 2; ++i) incomplete.start(i);
          for (std::size_t i = 0; i < 2; ++i) {
            const CallOutcome outcome = incomplete.get(i);
            expect(!outcome.ok(), [&] { return outcome.call + " succeeded, expected an error"; });
            expect(outcome.pointer("*collComm") == 0, [&] { return outcome.call + " failed and stored a collComm"; });
          }
        });
      },
      [&] { return fmt::format("rank {} had ended before connect", ranks[2].name()); });
}

RULE_ON(CollNetRule, CO_04, Must, ApiRange::coll_net(),  //
        .title = "connect keeps no pointer to the handles", .text = "The handles are valid until connect returns.",
        .source = "transport/coll_net.cc: sharedConnect: the array of handles is on the stack",
        .why = "NCCL's stack holds something else afterwards. A plugin that reads it there fails at random.",
        .check =
            "Connects, overwrites the handles and their array as after every call, and reduces vectors, including "
            "after further calls of reduceSupport and regMr.",
        .blind = "Pointers that are read only after an error.") {
  const std::vector<Member> members = connected();
  const Reduction reduction = usual_reduction(members);
  for (const std::size_t count : {1u, 2000u}) require_reduction(members, reduction, count, random()());
}

RULE_ON(CollNetRule, CO_05, Should, ApiRange::coll_net(),  //
        .title = "connect of a single rank returns",
        .text = "connect with one rank succeeds, and a reduction copies its input, or it returns an error.",
        .source = "transport/coll_net.cc: sharedConnect; nranks is the number of nodes",
        .why = "NCCL_COLLNET_NODE_THRESHOLD=1 makes NCCL connect a single node.",
        .check = "Connects one rank, and reduces a vector if that succeeds.",
        .blind = "Collectives other than allreduce.") {
  Joining joining({rank_with_devices()});
  joining.start(0);
  const CallOutcome outcome = joining.get(0);
  if (!outcome.ok()) {
    expect(outcome.pointer("*collComm") == 0, [&] { return outcome.call + " failed and stored a collComm"; });
    observe(fmt::format("{} returned {}", outcome.call, result_name(outcome.code)));
    return;
  }
  const std::vector<Member> alone = {{{rank_with_devices(), outcome.pointer("*collComm")}}};
  require_reduction(alone, usual_reduction(alone), 1000, random()(), "of one rank");
}

RULE_ON(CollNetRule, CO_06, Must, ApiRange::coll_net(),  //
        .title = "a collComm works after its listener is closed",
        .text = "closeListen right after connect does not disturb the communicator.",
        .source = "transport/coll_net.cc: sharedConnect closes the listener at once",
        .why = "NCCL closes the listener before the first collective.",
        .check = "Reduces vectors after closeListen, closes the communicator, and does so again with new listeners.",
        .blind = "A listener that is never closed.") {
  const std::vector<Rank> ranks = all_ranks();
  const std::vector<Member> first = connect_all(ranks);
  const Reduction reduction = usual_reduction(first);
  require_reduction(first, reduction, 1000, random()(), "after closeListen");
  for (const Member& member : first) member.close();
  const std::vector<Member> second = connect_all(ranks);
  require_reduction(second, reduction, 1000, random()(), "after a second connect and closeListen");
}

RULE_ON(
    CollNetRule, CO_09, Must, ApiRange::coll_net(),  //
    .title = "a range can be registered many times",
    .text =
        "Each regMr of the same range succeeds, and each deregMr ends one of these registrations, in any order, even "
        "after the memory is unmapped.",
    .source = "transport/coll_net.cc: each channel registers the pool twice; the first one that ends frees the memory",
    .why =
        "NCCL registers the pool 2 x channels times. The first channel that ends frees the memory; the others "
        "deregister a range that is gone.",
    .check =
        "Registers a range 16 times, deregisters half of the handles in random order, reduces with another one, "
        "unmaps the memory and deregisters the rest.",
    .blind = "Registrations of GPU memory.") {
  const std::vector<Member> members = connected();
  const Reduction reduction = usual_reduction(members);
  constexpr std::size_t kRegistrations = 16, kCount = 500;
  const std::size_t bytes = kCount * element_size(reduction.type);
  const nccl::Pattern pattern = pattern_of(reduction, members.size(), random()());
  std::vector<Collective> collectives;
  std::vector<Memory> memories;
  std::vector<std::vector<std::uint64_t>> handles(members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    Rank rank = members[i].rank;
    const Memory& memory = memories.emplace_back(rank.allocate(2 * bytes));
    for (std::size_t n = 0; n < kRegistrations; ++n) handles[i].push_back(members[i].reg(memory));
    for (std::size_t n = kRegistrations - 1; n > 0; --n) std::swap(handles[i][n], handles[i][random_between(0, n)]);
    for (std::size_t n = 0; n < kRegistrations / 2; ++n, handles[i].pop_back()) members[i].dereg(handles[i].back());
    rank.write(memory.address(), contribution(pattern, reduction.type, i, kCount));
    collectives.emplace_back(members[i], "iallreduce",
                             allreduce_arguments(reduction, kCount, {memory.sub(0, bytes), handles[i][0]},
                                                 {memory.sub(bytes, bytes), handles[i][1]}));
  }
  finish(collectives);
  for (std::size_t i = 0; i < members.size(); ++i) {
    Rank rank = members[i].rank;
    const auto differences = pattern.compare_sum(rank.read(memories[i].sub(bytes, bytes)).data(), 0, kCount);
    expect(differences.count == 0, [&] {
      return fmt::format("rank {}: after half of {} registrations of a range were deregistered: {}", rank.name(),
                         kRegistrations, differences.first);
    });
    memories[i].unmap();
    for (const std::uint64_t handle : handles[i]) members[i].dereg(handle);
  }
}

RULE_ON(CollNetRule, CO_15, Must, ApiRange::coll_net(),  //
        .title = "closeColl needs no help from other ranks",
        .text = "deregMr and closeColl return while other ranks make no calls or have ended.",
        .source = "transport/coll_net.cc: sharedFree; ncclCommAbort after the loss of a rank",
        .why = "A rank that aborts closes its comms while others are idle or dead. A close that waits hangs the job.",
        .check = "Reduces a vector, closes one rank's end while the others are stopped, kills one and closes the rest.",
        .blind = "Closes with requests outstanding; CO-24 has them.", .ranks = 3, .alone = true) {
  const std::vector<Member> members = connected();
  const Vectors vectors(members, usual_reduction(members), 1000, random()());
  vectors.reduce();
  std::vector<Rank> others;
  for (std::size_t i = 1; i < members.size(); ++i) others.push_back(members[i].rank);
  for (Rank& other : others) other.freeze();
  vectors.dereg(0);
  members[0].close();
  for (Rank& other : others) other.thaw();
  others.back().kill();
  for (std::size_t i = 1; i + 1 < members.size(); ++i) {
    vectors.dereg(i);
    members[i].close();
  }
}

RULE_ON(
    CollNetRule, CO_24, Must, ApiRange::coll_net(),  //
    .title = "collectives end after the death of a rank, and close works",
    .text =
        "If a rank ends, test of an unfinished collective returns an error on the others or stays incomplete; it never "
        "reports a result. closeColl then succeeds.",
    .source = "transport/coll_net.cc: an error of test ends the progress thread; ncclCommAbort closes the comms",
    .why = "A collective that completes without the contribution of a rank gives a wrong result without an error.",
    .check =
        "Posts a reduction on all ranks but one, kills that one, tests the others for a while and closes their ends.",
    .blind = "Ranks that end in the middle of a vector.", .ranks = 3) {
  const std::vector<Member> members = connected();
  const Vectors vectors(members, usual_reduction(members), 1000, random()());
  std::vector<Collective> collectives = vectors.allreduces();
  collectives.pop_back();
  for (Collective& collective : collectives) collective.post();
  Rank last = members.back().rank;
  last.kill();
  for (Collective& collective : collectives) {
    if (collective.request() == 0) continue;  // deferred
    StallLimit limit = stall_limit().times(0.05);
    for (CallOutcome outcome = collective.try_test(); outcome.ok(); outcome = collective.try_test()) {
      expect(!collective.done(), [&] {
        return fmt::format("{} completed a reduction to which rank {}, which is dead, had not contributed",
                           outcome.call, last.name());
      });
      if (limit.expired()) break;
    }
  }
  for (std::size_t i = 0; i + 1 < members.size(); ++i) {
    vectors.dereg(i);
    members[i].close();
  }
}

}  // namespace plugfest::conformance
