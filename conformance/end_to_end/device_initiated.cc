// EE rules of GIN plugins: kernels put over the network, and NCCL's proxy calls the plugin for them.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "conformance/end_to_end/nccl_rule.h"
#include "harness/faults/script.h"
#include "harness/nccl/rank_environment.h"
#include "harness/plugin/inspect.h"
#include "harness/plugin/nccl.h"
#include "harness/plugin/releases.h"

namespace plugfest::conformance {

namespace {

using nccl::JobRanks;

// Not of RMA plugins: NCCL 2.28.9 loads none.
constexpr ApiRange kGinVersions{.first = 11, .interface = plugin::InterfaceKind::kGin};

constexpr int kForever = 1'000'000;

class PutRule : public NcclRule {
 protected:
  /// run_job() with ranks whose memory kernels can put into.
  void run_put_job(int ranks, Environment environment, const std::function<void(JobRanks& group)>& part) {
    require_version();
    for (const auto& [name, value] : nccl::device_api_environment(nccl::DeviceApi::kHosts))
      nccl::set(environment, name, value);
    // GIN of NCCL is a part of its IB transport.
    const bool is_builtin = plugin::is_builtin(context().nccl.plugin);
    run_job({.ranks = ranks, .environment = environment, .plugin = is_builtin ? "nccl:IB" : ""}, part);
  }

  /// Runs a job that puts blocks of each of `sizes` bytes, and requires that every byte and signal is right.
  void require_right_job(int ranks, const Environment& environment, nccl::PutAllToAll puts,
                         const std::vector<std::size_t>& sizes) {
    run_put_job(ranks, environment, [&](JobRanks& group) {
      for (const std::size_t bytes : sizes) {
        puts.bytes = bytes;
        require_right_puts(group, puts);
      }
      group.all(nccl::Destroy{puts.comm});
    });
  }

  void send_puts(JobRanks& group, const std::vector<int>& ranks, nccl::PutAllToAll puts) {
    puts.seed = random()();
    for (const int rank : ranks) group.send(rank, puts);
  }

  /// Puts among `members` of a communicator, or all ranks, and requires that every byte and signal is right.
  void require_right_puts(JobRanks& group, const nccl::PutAllToAll& puts, std::vector<int> members = {}) {
    if (members.empty()) members = group.all_ranks();
    send_puts(group, members, puts);
    // A rank that has failed keeps the others waiting.
    for (std::vector<int> running = members; !running.empty();) {
      const auto [rank, answer] = group.receive_any(running);
      if (answer.is_running) continue;
      std::erase(running, rank);
      expect(answer.ok && answer.wrong == 0, [&, rank = rank, &answer = answer] {
        return fmt::format("rank {} on {}: alltoall by puts of {} bytes on {} ranks: {}", rank, group.host(rank),
                           puts.bytes, members.size(), answer.text);
      });
    }
  }

 private:
  void require_version() {
    if (context().library.empty()) return;
    const plugin::Release& release = *plugin::find_release("2.28.9");
    const std::vector<int> exported = plugin::inspect(context().library).exported_versions(plugin::InterfaceKind::kGin);
    if (release.choose(plugin::InterfaceKind::kGin, exported) == 0)
      not_applicable(fmt::format("NCCL {} loads GIN v{}, and the library exports {}", release.name,
                                 release.of(plugin::InterfaceKind::kGin).newest, plugin::versions_text(exported)));
  }
};

}  // namespace

RULE_ON(PutRule, EE_14, Must, kGinVersions,  //
        .title = "puts of kernels are complete when their signals arrive",
        .text =
            "When kernels put over the network, NCCL's proxy calls the plugin. Once the signal of a put has arrived, "
            "every byte of the put is in its place. Once the put's request is done, its source may be written again.",
        .source = "gin/gin_host_proxy.cc; nccl_device/gin/proxy/gin_proxy.h",
        .why =
            "A kernel waits only for the signal, and then reads. If the bytes are late, the result is wrong, and "
            "nothing reports it. A plugin that does not initialize under NCCL leaves kernels without a network.",
        .check =
            "A rank in each of up to four hosts acts as a kernel: it writes the descriptors of puts and "
            "signals into the queues of NCCL's proxy. Each rank puts 1, 4,097 and 300,000 bytes to each rank, itself "
            "included, in four rounds. Compares every byte and the signals once these have arrived, and overwrites "
            "the sources once the puts are flushed.",
        .blind =
            "Other releases than NCCL 2.28.9, putValue, which does not work there, counters, GIN that the GPU drives, "
            "and kernel code, which plugfest nvcc runs.",
        .runs_nccl = true) {
  require_right_job(ranks_on_hosts(4), {}, {.comm = "world", .rounds = 4}, {1, 4097, 300'000});
}

RULE_ON(PutRule, EE_15, Must, kGinVersions,  //
        .title = "lost packets do not change the puts of kernels",
        .text = "With 1 % of all packets lost, every byte of every put of a kernel is right when its signal arrives.",
        .source = "InfiniBand RC and TCP retransmit",
        .why =
            "A signal must not overtake bytes that are sent again, and must not be added twice. A kernel that waits "
            "for a lost signal hangs.",
        .check =
            "Loses 1 % of the packets of every NIC while a rank in each of up to three hosts puts 1,000 and 300,000 "
            "bytes to each rank in 20 rounds, as in EE-14. Compares every byte and signal.",
        .blind = "Plugins that do not use the NICs: the rule loses none of their packets.", .runs_nccl = true) {
  require_injector();
  const faults::ActiveFault loss(*context().injector, {.packets = {.loss = 0.01, .seed = random()()},
                                                       .interfaces = faults::host_interfaces(graph())});
  require_right_job(ranks_on_hosts(3), {}, {.comm = "world", .rounds = 20}, {1000, 300'000});
}

RULE_ON(
    PutRule, EE_16, Must, kGinVersions,  //
    .title = "after a rank dies during puts, the others can abort",
    .text =
        "When a rank is killed while kernels put to it, the plugin's calls return on the survivors, with or "
        "without an error. ncclCommAbort returns on all survivors, and their kernels can put on a new communicator "
        "without the dead rank.",
    .source = "gin/gin_host.cc, gin/gin_host_proxy.cc; init.cc: ncclCommAbort",
    .why =
        "The kernel waits for a signal that never comes, so the program aborts. An abort that waits for requests "
        "to a dead rank hangs the process that should restart.",
    .check =
        "Kills rank 1 while ranks in up to three hosts put as in EE-14. Waits for an error of ncclCommGetAsyncError "
        "for a twelfth of the time limit, 5 s, aborts on all survivors, and repeats the puts on a new communicator "
        "of the survivors.",
    .blind =
        "Whether the plugin reports the dead rank, which GI-14 checks: NCCL 2.28.9 ignores the result of test, "
        "and never calls queryLastError of a plugin that its proxy drives.",
    .runs_nccl = true) {
  constexpr std::size_t kBytes = 100'000;
  // With three ranks, two survivors.
  run_put_job(std::max(3, ranks_on_hosts(3)), short_timeouts(), [&](JobRanks& group) {
    group.init("idle");  // keeps the plugin loaded: NCCL 2.28.9 does not load one a second time
    send_puts(group, group.all_ranks(), {.comm = "world", .bytes = kBytes, .rounds = kForever});
    for (const int rank : group.all_ranks()) {
      const nccl::Answer answer = group.receive(rank);
      expect(answer.ok, [&] { return fmt::format("rank {} on {}: {}", rank, group.host(rank), answer.text); });
    }
    group.kill(1);
    std::vector<int> survivors = group.all_ranks();
    std::erase(survivors, 1);
    const std::string error = require_error_and_abort(group, survivors, "world", context().nccl.seconds / 12);
    observe(error.empty() ? "NCCL reported no error" : error);
    group.init("rest", survivors);
    require_right_puts(group, {.comm = "rest", .bytes = kBytes, .rounds = 4}, survivors);
  });
}

RULE_ON(PutRule, EE_17, Must, kGinVersions,  //
        .title = "kernels put through two contexts at the same time",
        .text =
            "When a communicator has two GIN contexts, the puts and signals of each are right while the other is "
            "busy.",
        .source = "gin/gin_host.cc: NCCL_GIN_NCONTEXTS; each context of 2.28.9 is a connection of its own",
        .why =
            "NCCL makes a context for each NIC near a GPU, and kernels spread their puts over them. If a signal or a "
            "request goes to another context, a result is wrong or a kernel hangs.",
        .check =
            "Sets NCCL_GIN_NCONTEXTS to 2. Each rank in up to three hosts puts one half of 1,000 and of 300,000 bytes "
            "through each context, as in EE-14, in eight rounds.",
        .blind = "More than two contexts, and contexts on NICs of their own.", .runs_nccl = true) {
  constexpr int kContexts = 2;
  require_right_job(ranks_on_hosts(3), {{"NCCL_GIN_NCONTEXTS", fmt::to_string(kContexts)}},
                    {.comm = "world", .contexts = kContexts, .rounds = 8}, {1000, 300'000});
}

}  // namespace plugfest::conformance
