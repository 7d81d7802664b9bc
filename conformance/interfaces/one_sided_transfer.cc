// Rules of GIN and RMA: puts, gets, flushes, requests.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "conformance/interfaces/interface_rule.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

using namespace control;

RULE_ON(
    OneSidedRule, GI_08, Must, ApiRange::one_sided(),  //
    .title = "puts of all sizes arrive on every rank",
    .text = "iput writes exactly its bytes to the target rank, at the offset in the memory that this rank registered.",
    .source = "plugin/rma: iput; gin/gin_host_proxy.cc",
    .why = "Kernels put from one byte to gigabytes, to every rank and to their own.",
    .check =
        "Puts 1, 7, 8, 64, 4,095 and 1,048,579 bytes from each rank to each rank, itself included, and compares "
        "every byte and the 64 bytes on both sides.",
    .blind = "Puts of more than a megabyte.", .ranks = 3, .most_ranks = 4) {
  OneSidedGroup group = connected();
  for (const std::size_t size : {1u, 7u, 8u, 64u, 4095u, (1u << 20) + 3}) group.require_puts(size, random()());
}

RULE_ON(OneSidedRule, GI_09, Must, ApiRange::one_sided(),  //
        .title = "32 x maxRecvs requests to each rank can be in flight",
        .text =
            "32 times maxRecvs puts to each rank can be outstanding at once. Each call stores another request, and "
            "none is NULL.",
        .source = "gin/gin_host_proxy.cc: the queue of each rank; NULL does not mean \"try again\"",
        .why = "NCCL does not repeat a put whose request is NULL: it fails, or waits forever.",
        .check = "Posts that number of puts of 8 bytes to each rank before any test, and compares the requests.",
        .blind = "Several contexts at once.", .ranks = 3) {
  OneSidedGroup group = connected();
  const std::size_t count = most_requests(group);
  const Window window = group.window(8 * count);
  std::vector<Operation> puts;
  puts.reserve(count * group.size());
  std::set<std::uint64_t> requests;
  for (std::size_t to = 0; to < group.size(); ++to) {
    for (std::size_t i = 0; i < count; ++i) {
      puts.emplace_back(group[0], "iput", put_arguments({window, 8 * i}, {window, 8 * i}, 8, 0, to));
      puts.back().post();
      expect(requests.insert(puts.back().request()).second, [&] {
        return fmt::format("rank {}: iput {} to rank {} stored the request 0x{:x} of an iput in flight",
                           group[0].name(), i, to, puts.back().request());
      });
    }
  }
  group.finish(puts);
}

RULE_ON(
    OneSidedRule, GI_10, Must, ApiRange::one_sided(),  //
    .title = "test completes requests in any order, and alone",
    .text =
        "test writes 0 or 1 to *done, which NCCL has set to 0. Requests may be tested in any order. From RMA and GIN "
        "v13 on, test alone completes a put to the own rank. [S]: test alone completes any put, even if its rank never "
        "calls the progress function.",
    .source = "rma/rma_proxy.cc: the flush spins on test alone; gin/gin_host_proxy.cc tests with holes",
    .why = "NCCL 2.30.7 calls only test while it waits for a put to its own rank, and hangs otherwise.",
    .check =
        "Posts eight puts and tests the last one first; then puts to its own rank and to another one, without "
        "progress function calls of its own.",
    .blind = "Orders other than these.") {
  OneSidedGroup group = connected();
  const Window window = group.window(8 * 1024);
  std::vector<Operation> puts;
  for (std::size_t i = 0; i < 8; ++i)
    puts.emplace_back(group[0], "iput", put_arguments({window, 1024 * i}, {window, 1024 * i}, 1024, 0, 1));
  for (Operation& put : puts) put.post();
  std::reverse(puts.begin(), puts.end());
  group.finish(puts);

  const auto put_to_itself = [](OneSidedGroup& ranks, const Window& memory) {
    std::vector<Operation> own;
    own.emplace_back(ranks[0], "iput", put_arguments({memory}, {memory, 8}, 8, 0, 0));
    ranks.finish(own, 0);
  };
  const bool must = abi::has_gets_and_contexts(api());
  if (must) put_to_itself(group, window);
  probe([&] {
    OneSidedGroup fresh = connected();
    const Window other = fresh.window(1024);
    if (!must) put_to_itself(fresh, other);
    std::vector<Operation> alone;
    alone.emplace_back(fresh[0], "iput", put_arguments({other}, {other}, 1024, 0, 1));
    fresh.finish(alone, 0);
  });
}

RULE_ON(OneSidedRule, GI_14, Must, ApiRange::one_sided(),  //
        .title = "the death of a peer is reported",
        .text =
            "queryLastError writes false while nothing has failed. After a peer's process was killed, a put to it ends "
            "in an error of iput, of test or of the progress function, or queryLastError writes true.",
        .source = "gin/gin_host.cc: the progress thread asks queryLastError",
        .why = "Otherwise the kernels of the job wait forever.",
        .check = "Asks after a put; kills the peer, puts to it, and waits for an error.",
        .blind = "How long the transport needs within the limit of its own retries.") {
  on_new_ranks([&] {
    OneSidedGroup group = connected();
    const Window window = group.window(8);
    OneSidedRank& own = group[0];
    const auto reports_error = [&] {
      if (own.context() == 0 || !own.rank().has_function("queryLastError")) return false;
      const CallOutcome outcome = own.call("queryLastError");
      expect(!outcome.untouched("*hasError"), [&] { return outcome.call + " succeeded and did not write *hasError"; });
      return outcome.pointer("*hasError") != 0;
    };
    std::vector<Operation> first;
    first.emplace_back(own, "iput", put_arguments({window}, {window}, 8, 0, 1));
    group.finish(first);
    expect(!reports_error(), "queryLastError wrote true although nothing had failed");

    group[1].rank().kill();
    StallLimit limit = detection_limit();
    const CallArguments put = put_arguments({window}, {window}, 8, 0, 1);
    std::uint64_t request = 0;
    while (!limit.expired()) {
      if (request == 0) {
        const CallOutcome posted = own.try_call("iput", put);
        if (!posted.ok()) return;
        request = posted.pointer("*request");
      }
      if (!own.try_progress()) return;
      const CallOutcome tested = own.try_call("test", {{"request", request}, {"*done", 0}});
      if (!tested.ok() || reports_error()) return;
      if (tested.integer("*done") != 0) request = 0;
    }
    broken(
        fmt::format("rank {}: no error {} s after rank {} was killed", own.name(), limit.seconds(), group[1].name()));
  });
}

RULE_ON(
    OneSidedRule, GI_17, Must, ApiRange::one_sided(13),  //
    .title = "gets read the memory of other ranks",
    .text =
        "iget reads bytes of another rank, which are in local memory when test says that it is done. iflush "
        "completes when all earlier operations to a rank have completed; it may store NULL if none is in flight. Both "
        "functions are optional.",
    .source = "plugin/rma: iget, iflush; gin/gin_host_proxy.cc refuses those that are NULL",
    .why = "Kernels read remote memory, and wait for earlier operations with a flush.",
    .check =
        "Gets 1, 8, 4,095 and 1,048,579 bytes from each rank, itself included, compares every byte, and "
        "flushes gets in flight if the plugin has iflush.",
    .blind = "Gets of more than a megabyte.", .ranks = 3, .most_ranks = 4) {
  OneSidedGroup group = connected();
  if (!group[0].rank().has_function("iget")) not_applicable("iget is NULL");
  const bool flushes = group[0].rank().has_function("iflush");
  for (const std::size_t size : {1u, 8u, 4095u, (1u << 20) + 3}) {
    const std::uint64_t seed = random()();
    const Window source = group.window(size), target = group.window(size * group.size());
    for (std::size_t i = 0; i < group.size(); ++i) group[i].rank().fill(source.memory[i], seed + i);
    std::vector<Operation> operations;
    for (std::size_t own = 0; own < group.size(); ++own) {
      for (std::size_t from = 0; from < group.size(); ++from) {
        operations.emplace_back(group[own], "iget", get_arguments({source}, {target, from * size}, size, own, from));
        operations.back().post();
        if (flushes)
          operations.emplace_back(group[own], "iflush",
                                  CallArguments{{"mhandle", target.mhandles[own]}, {"rank", from}});
      }
    }
    group.finish(operations);
    for (std::size_t own = 0; own < group.size(); ++own)
      for (std::size_t from = 0; from < group.size(); ++from)
        require_same(group[own].rank().check(target.memory[own].sub(from * size, size), seed + from),
                     fmt::format("rank {}: a get of {} bytes from rank {}", group[own].name(), size, from));
    group.dereg(source.mhandles);
    group.dereg(target.mhandles);
  }
}

RULE_ON(
    OneSidedRule, GI_27, Should, ApiRange::one_sided(),  //
    .title = "invalid operations return an error",
    .text =
        "An offset outside a registration, a rank that does not exist, and an unknown signal operation give an error.",
    .source = "transport/net_ib/gin.cc and rma_socket: ncclInvalidArgument",
    .why = "A mistake in a kernel should end in a message, not in overwritten memory.",
    .check = "Calls iput and iputSignal with such arguments, in ranks that serve no other rule.") {
  probe([&] {
    OneSidedGroup group = connected();
    const Window window = group.window(64);
    const CallArguments good = put_arguments({window}, {window}, 8, 0, 1);
    const auto refuses = [&](const char* what, const char* function, const CallArguments& arguments) {
      const CallOutcome outcome = group[0].try_call(function, arguments);
      should(!outcome.ok(), fmt::format("{} with {} returned Success, expected an error", outcome.call, what));
    };
    refuses("an offset beyond the remote memory", "iput", with(good, {{"dstOff", 60}}));
    refuses("an offset beyond the local memory", "iput", with(good, {{"srcOff", 60}}));
    refuses("a rank that does not exist", "iput", with(good, {{"rank", group.size()}}));
    refuses("an unknown operation", "iputSignal",
            with(signal_arguments({window}, 0, 1, abi::kSignalInc, 1), {{"signalOp", 77}}));
  });
}

}  // namespace plugfest::conformance
