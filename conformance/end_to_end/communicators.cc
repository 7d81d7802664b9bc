// EE rule: communicators of one process.
#include <fmt/format.h>

#include <algorithm>

#include "conformance/end_to_end/nccl_rule.h"

namespace plugfest::conformance {

using nccl::RankGroup;

RULE_ON(
    NcclRule, EE_04, Must, ApiRange::all(),  //
    .title = "communicators live and end independently",
    .text =
        "Several communicators of the same processes, and parts split from them, work at the same time and are "
        "destroyed "
        "in any order, and new ones can be created.",
    .source = "init.cc: ncclCommSplit, ncclCommDestroy; plugin/net.cc: ncclNetFinalize, references to plugins",
    .why = "Programs with tensor, pipeline and data parallelism have a communicator for each, and rebuild some.",
    .check =
        "Creates a second communicator, splits both with the same and the reverse order of ranks, and runs allreduces "
        "on "
        "all. Destroys them in a random order with an allreduce on the others after each, and creates one more before "
        "the "
        "last.",
    .blind =
        "Operations of several communicators in flight at the same moment. A second load of the library, which NCCL "
        "2.28.9 does not do: LD-10 does.",
    .runs_nccl = true) {
  run_job({.ranks = ranks_on_hosts(3)}, [&](RankGroup& group) {
    const auto split = [&](const char* from, bool reverse, const char* to) {
      for (int rank = 0; rank < group.size(); ++rank)
        group.send(rank, fmt::format("split {} 0 {} {}", from, reverse ? -rank : rank, to));
      for (int rank = 0; rank < group.size(); ++rank) {
        const nccl::Answer answer = group.receive(rank);
        expect(answer.ok, [&] { return fmt::format("rank {}: {}", rank, answer.text); });
      }
    };
    std::size_t bytes = 1000;
    const auto use = [&](const std::string& communicator) {
      bytes = bytes * 7 % 500'000 + 4;
      require_right(group, communicator, {.bytes = bytes, .iterations = 2, .seed = random()()});
    };
    group.init("other");
    split("world", false, "same");
    split("other", true, "reverse");
    std::vector<std::string> alive = {"world", "other", "same", "reverse"};
    std::for_each(alive.begin(), alive.end(), use);
    for (bool created = false; !alive.empty();) {
      // Once its last communicator is destroyed, NCCL 2.28.9 forgets NCCL_NET_PLUGIN and would look for libnccl-net.so.
      if (alive.size() == 1 && !created) {
        group.init("again");
        alive.emplace_back("again");
        use("again");
        created = true;
      }
      const auto victim = alive.begin() + static_cast<std::ptrdiff_t>(random_between(0, alive.size() - 1));
      group.all("destroy " + *victim);
      alive.erase(victim);
      std::for_each(alive.begin(), alive.end(), use);
    }
  });
}

}  // namespace plugfest::conformance
