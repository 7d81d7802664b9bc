// Rules about many collectives at a time: on one communicator, on several, and over a long time.
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "conformance/interfaces/collnet_group.h"
#include "harness/traffic/growth.h"

namespace plugfest::conformance {

RULE_ON(CollNetRule, CO_11, Must, ApiRange::coll_net(),  //
        .title = "a full communicator defers instead of failing",
        .text =
            "When a collective cannot be posted, the call succeeds and stores NULL, and NCCL repeats it later. 64 "
            "collectives that NCCL posts before it tests one all complete, in any number at a time.",
        .source = "transport/coll_net.cc: up to 8 groups of 8 steps on one collComm; a NULL request is repeated",
        .why = "An error ends NCCL's progress thread, and the job.",
        .check = "Posts 64 reductions on each rank without a test, repeats refused ones, and compares all results.",
        .blind = "More than 64 collectives, which NCCL does not post.") {
  const std::vector<Member> members = connected();
  const Reduction reduction = usual_reduction(members);
  constexpr std::size_t kPosted = 64;
  std::vector<Vectors> vectors;
  std::vector<Collective> collectives;
  for (std::size_t n = 0; n < kPosted; ++n)
    vectors.emplace_back(members, reduction, 10 + n, random()(), Vectors::Result::kOtherHalf);
  for (std::size_t i = 0; i < members.size(); ++i) {
    // Refused collectives hold back later ones, so that all ranks post in one order.
    bool accepted = true;
    for (std::size_t n = 0; n < kPosted; ++n) {
      collectives.push_back(vectors[n].allreduce(i));
      accepted = accepted && collectives.back().post();
    }
  }
  // Turns: tests of accepted ones, and the next refused one of each rank.
  std::vector<std::size_t> oldest(members.size(), 0);
  StallLimit limit = stall_limit();
  for (std::size_t left = kPosted * members.size(); left > 0;) {
    bool progress = false;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (oldest[i] == kPosted) continue;
      if (!collectives[i * kPosted + oldest[i]].turn()) continue;
      ++oldest[i];
      --left;
      progress = true;
    }
    if (progress) limit.restart();
    expect(progress || !limit.expired(), [&] {
      return fmt::format("{} of {} reductions that were posted before the first test never completed", left,
                         kPosted * members.size());
    });
  }
  for (const Vectors& one : vectors) one.require_results();
}

RULE_ON(
    CollNetRule, CO_16, Must, ApiRange::coll_net(),  //
    .title = "collectives may be tested in any order",
    .text = "The requests of one collComm are tested in an order that differs from the order of posting. All complete.",
    .source = "transport/coll_net.cc: sendProxyProgress tests the requests of up to 8 groups of channels in rotation",
    .why = "The groups of an operation progress at different speeds, and one thread tests them in turn.",
    .check = "Posts 8 reductions on each rank, and tests them from the newest to the oldest until all are complete.",
    .blind = "More than 8 groups, which NCCL does not have.") {
  const std::vector<Member> members = connected();
  const Reduction reduction = usual_reduction(members);
  constexpr std::size_t kGroups = 8;
  std::vector<Vectors> vectors;
  std::vector<std::vector<Collective>> newest_first;
  for (bool accepted = true; accepted && vectors.size() < kGroups;) {
    const Vectors& one = vectors.emplace_back(members, reduction, 500, random()(), Vectors::Result::kOtherHalf);
    newest_first.insert(newest_first.begin(), one.allreduces());
    // A deferred reduction is posted again below, so no later one may be posted on any rank.
    for (Collective& collective : newest_first.front()) accepted = collective.post() && accepted;
  }
  std::vector<Collective> collectives;
  for (const std::vector<Collective>& one : newest_first) collectives.insert(collectives.end(), one.begin(), one.end());
  finish(collectives);
  for (const Vectors& one : vectors) one.require_results();
}

RULE_ON(
    CollNetRule, CO_23, Must, ApiRange::coll_net(),  //
    .title = "communicators of the same ranks are independent",
    .text =
        "One thread drives several communicators of the same ranks. A collective of one completes while one of another "
        "is unfinished.",
    .source = "transport/coll_net.cc: one progress thread for all communicators of a GPU",
    .why = "If collectives of two communicators wait for each other, or get each other's data, the job hangs or fails.",
    .check =
        "Posts a reduction of the first communicator on one rank only, completes one of the second, then the first.",
    .blind = "Communicators with different ranks.") {
  const std::vector<Rank> ranks = all_ranks();
  const std::vector<Member> first = connect_all(ranks), second = connected_again(ranks);
  const Reduction reduction = usual_reduction(first);
  const Vectors slow(first, reduction, 2000, random()()), fast(second, reduction, 2000, random()());
  std::vector<Collective> unfinished = slow.allreduces(), finished = fast.allreduces();
  unfinished[0].post();
  finish(finished);
  fast.require_results();
  finish(unfinished);
  slow.require_results();
}

RULE_ON(
    CollNetRule, CO_25, Should, ApiRange::coll_net(),  //
    .title = "ranks may post to different communicators in different orders",
    .text = "The order of collectives of different communicators may differ from rank to rank.",
    .source = "transport/coll_net.cc: operations of different communicators have no common order",
    .why =
        "Communicators use different streams, so ranks may reach their collectives in different orders. A plugin that "
        "requires one order deadlocks.",
    .check = "Posts to two communicators in one order on the first rank and in the reverse order on the others.",
    .blind = "More than two communicators.") {
  const std::vector<Rank> ranks = all_ranks();
  const std::vector<Member> first = connect_all(ranks), second = connected_again(ranks);
  const Reduction reduction = usual_reduction(first);
  const Vectors one(first, reduction, 3000, random()()), other(second, reduction, 3000, random()());
  std::vector<Collective> collectives;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (const Vectors* vectors : {i == 0 ? &one : &other, i == 0 ? &other : &one}) {
      collectives.push_back(vectors->allreduce(i));
      collectives.back().post();
    }
  finish(collectives);
  one.require_results();
  other.require_results();
}

RULE_ON(
    CollNetRule, CO_27, Should, ApiRange::coll_net(),  //
    .title = "collectives leave nothing behind",
    .text = "After collectives are done, a process has as many descriptors and threads and as much memory as before.",
    .source = "applications that run for weeks",
    .why = "If each collective leaves something behind, the memory of a job grows until it is killed.",
    .check =
        "Runs three batches of 500 reductions, and compares the descriptors, threads and resident memory of all "
        "processes after each batch. What grows in every batch leaks.",
    .blind = "Leaks of less than 256 bytes for each collective.") {
  const std::vector<Member> members = connected();
  const Vectors vectors(members, usual_reduction(members), 100, random()());
  std::vector<Rank> ranks;
  for (const Member& member : members) ranks.push_back(member.rank);
  const auto reduce = [&] {
    std::vector<Collective> collectives = vectors.allreduces();
    finish(collectives);
  };
  const int batch = repeated(500);
  for (const std::string& leak :
       traffic::growth(ranks, stall_limit(),
                       {.warm_up = batch, .calls = batch, .name = "reductions", .least_bytes = 256, .work = reduce}))
    should(false, leak);
  vectors.require_results();
}

}  // namespace plugfest::conformance
