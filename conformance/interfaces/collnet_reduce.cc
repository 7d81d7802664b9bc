// Rules about collectives of CollNet: results, requests, windows, flushes.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "conformance/interfaces/collnet_group.h"
#include "harness/abi/coll_net.h"
#include "harness/wire/calls.h"

namespace plugfest::conformance {
namespace {

// An array of one NCCL scatter-gather entry, whose size is an int in v8.
std::vector<std::byte> part(int api, std::uint64_t mhandle, std::uint64_t address, std::size_t size) {
  std::vector<std::byte> bytes(24);
  std::memcpy(bytes.data(), &mhandle, 8);
  std::memcpy(bytes.data() + 8, &address, 8);
  std::memcpy(bytes.data() + 16, &size, api == 8 ? 4 : 8);
  return bytes;
}

// The first own byte of rank `rank` inside a window, and the number of its bytes there.
struct OwnPart {
  OwnPart(std::size_t rank, std::size_t block, std::size_t offset, std::size_t window) {
    const std::size_t first = std::max(rank * block, offset), last = std::min((rank + 1) * block, offset + window);
    if (first >= last) return;
    in_block = first - rank * block;
    size = last - first;
  }
  std::size_t in_block = 0, size = 0;
};

}  // namespace

RULE_ON(
    CollNetRule, CO_08, Must, ApiRange::coll_net(),  //
    .title = "reductions of every supported type and operation are right",
    .text =
        "For each pair that reduceSupport accepts, every rank gets the reduction of all contributions. Integers wrap. "
        "The input stays unchanged. [S]: all ranks get the same bits.",
    .source = "transport/coll_net.cc: sendProxyProgress; init.cc: collNetSupportMatrix",
    .why = "NCCL hands every supported reduction to the network and does not check its result.",
    .check =
        "Reduces 1, 7 and 1023 elements of each supported pair over up to 16 ranks, with memory that ends at a guard "
        "page, and compares every byte; then 1,000 random floats on all ranks with each other.",
    .blind = "Rounding of floating-point numbers: the values are chosen so that all results are exact.", .ranks = 3,
    .most_ranks = 16) {
  const std::vector<Member> members = connected();
  const std::vector<Reduction> supported = supported_reductions(members);
  if (supported.empty()) not_applicable("reduceSupport wrote 0 for every data type and operation");
  Vectors vectors(members, {abi::kUint64, abi::kSum}, 1023, 0);  // memory for every type
  for (const Reduction& reduction : supported) {
    for (const std::size_t count : {1u, 7u, 1023u}) {
      vectors.refill(reduction, count, random()());
      vectors.reduce();
    }
  }
  const auto sum = std::find_if(supported.begin(), supported.end(),
                                [](const Reduction& one) { return one.type == abi::kFloat32 && one.op == abi::kSum; });
  if (sum == supported.end()) return;
  constexpr std::size_t kCount = 1000;
  vectors.refill(*sum, kCount, 0);
  for (std::size_t i = 0; i < members.size(); ++i) {
    Rank rank = members[i].rank;
    std::vector<float> own(kCount);
    for (float& value : own) value = static_cast<float>(random_between(1, 1 << 30)) / 1000003.0F;
    const auto* const first = reinterpret_cast<const std::byte*>(own.data());
    rank.write(vectors.input(i).slice.address, {first, first + kCount * sizeof(float)});
  }
  std::vector<Collective> collectives = vectors.allreduces();
  finish(collectives);
  Rank first = members[0].rank;
  const std::vector<std::byte> expected = first.read(vectors.result(0).slice);
  for (std::size_t i = 1; i < members.size(); ++i) {
    Rank rank = members[i].rank;
    should(rank.read(vectors.result(i).slice) == expected, [&] {
      return fmt::format("ranks {} and {} got different sums of the same floats", first.name(), rank.name());
    });
  }
}

RULE_ON(CollNetRule, CO_10, Must, ApiRange::coll_net(),  //
        .title = "a reduction may be in place, or use two regions of a registration",
        .text = "iallreduce works with equal send and receive pointers, and with two regions of one registration.",
        .source = "transport/coll_net.cc: registered buffers; regions of the pool have one registration",
        .why = "NCCL reduces users' buffers in place, and its own in two regions of one pool.",
        .check = "Reduces 5,000 elements in place, and between two halves of a registration.",
        .blind = "Other collectives in place.", .ranks = 3) {
  const std::vector<Member> members = connected();
  const Reduction reduction = usual_reduction(members);
  for (const auto& [place, situation] : {std::pair(Vectors::Result::kInPlace, "in place"),
                                         std::pair(Vectors::Result::kOtherHalf, "in one registration")}) {
    const Vectors vectors(members, reduction, 5000, random()(), place);
    vectors.reduce(situation);
  }
}

RULE_ON(
    CollNetRule, CO_12, Must, ApiRange::coll_net(),  //
    .title = "allgather and reduce-scatter work on windows",
    .text =
        "iallgather and ireducescatter transfer the given window of all blocks, which may begin and end inside blocks. "
        "A rank whose block lies outside it takes part, and its own memory is not changed.",
    .source = "transport/coll_net.cc: windowOffset, windowBytes; the own pointer is the first own byte of the window",
    .why = "NCCL splits a collective into windows of a chunk, without regard to the blocks of ranks.",
    .check =
        "Runs both with windows that lie inside a block, span blocks, end before the total and miss a rank's block, "
        "and compares every byte.",
    .blind = "Several parts in one call: NCCL uses one.", .ranks = 3) {
  const std::vector<Member> members = connected();
  const Reduction reduction = usual_reduction(members);
  Rank first = members[0].rank;
  const bool gathers = first.has_function("iallgather"), scatters = first.has_function("ireducescatter");
  if (!gathers && !scatters) not_applicable("the plugin has neither iallgather nor ireducescatter");
  const std::size_t ranks = members.size(), element = element_size(reduction.type);
  const std::size_t block = 100 * element, total = ranks * block;
  const std::size_t windows[][2] = {{0, total},
                                    {10 * element, 20 * element},
                                    {50 * element, block + 7 * element},
                                    {block, block},
                                    {block - element, total - block}};
  const std::uint64_t seed = random()();
  const nccl::Pattern pattern = pattern_of(reduction, ranks, seed);
  for (const auto& [offset, window] : windows) {
    std::vector<RegisteredMemory> blocks, vectors;
    std::vector<Collective> gathering, scattering;
    for (std::size_t i = 0; i < ranks; ++i) {
      Rank rank = members[i].rank;
      const OwnPart own(i, block, offset, window);
      const auto at = [&](const RegisteredMemory& memory) { return memory.memory.address() + own.in_block; };
      const RegisteredMemory& own_block = blocks.emplace_back(members[i].allocate(block));
      const RegisteredMemory& vector = vectors.emplace_back(members[i].allocate(total));
      rank.fill(own_block.memory, seed + i);
      gathering.emplace_back(members[i], "iallgather",
                             CallArguments{{"sendData", at(own_block)},
                                           {"nRecvParts", 1},
                                           {"recvParts", part(api(), vector.mhandle, vector.memory.address(), window)},
                                           {"bytesPerRank", block},
                                           {"windowOffset", offset},
                                           {"windowBytes", window},
                                           {"sendMhandle", own_block.mhandle}});
      scattering.emplace_back(
          members[i], "ireducescatter",
          CallArguments{{"nSendParts", 1},
                        {"sendParts", part(api(), vector.mhandle, vector.memory.address() + offset, window)},
                        {"recvData", at(own_block)},
                        {"bytesPerRank", block},
                        {"windowOffset", offset},
                        {"windowBytes", window},
                        {"dataType", reduction.type},
                        {"redOp", reduction.op},
                        {"recvMhandle", own_block.mhandle}});
    }
    const auto complain = [&, offset = offset, window = window](const Rank& rank, const char* what) {
      broken(fmt::format("rank {}: {} of {} bytes per rank, window of {} bytes at {}: wrong result", rank.name(), what,
                         block, window, offset));
    };
    const auto changed = [](std::byte one) { return one != std::byte{0x5a}; };
    if (gathers) {
      for (std::size_t i = 0; i < ranks; ++i) Rank(members[i].rank).set(vectors[i].memory, 0x5a);
      finish(gathering);
      for (std::size_t i = 0; i < ranks; ++i) {
        Rank rank = members[i].rank;
        const std::vector<std::byte> found = rank.read(vectors[i].memory);
        if (std::any_of(found.begin() + static_cast<std::ptrdiff_t>(window), found.end(), changed))
          complain(rank, "iallgather");
        for (std::size_t other = 0; other < ranks; ++other) {
          const OwnPart theirs(other, block, offset, window);
          if (theirs.size == 0) continue;
          Rank sender = members[other].rank;
          const std::vector<std::byte> sent = sender.read(blocks[other].memory.sub(theirs.in_block, theirs.size));
          const std::size_t position = other * block + theirs.in_block - offset;
          if (!std::equal(sent.begin(), sent.end(), found.begin() + static_cast<std::ptrdiff_t>(position)))
            complain(rank, "iallgather");
        }
      }
    }
    if (!scatters) continue;
    for (std::size_t i = 0; i < ranks; ++i) {
      Rank rank = members[i].rank;
      rank.write(vectors[i].memory.address(), contribution(pattern, reduction.type, i, ranks * 100));
      rank.set(blocks[i].memory, 0x5a);
    }
    finish(scattering);
    for (std::size_t i = 0; i < ranks; ++i) {
      Rank rank = members[i].rank;
      const OwnPart own(i, block, offset, window);
      const std::vector<std::byte> found = rank.read(blocks[i].memory);
      const auto begin = found.begin() + static_cast<std::ptrdiff_t>(own.in_block);
      const std::size_t wrong =
          pattern.compare_sum(found.data() + own.in_block, (i * block + own.in_block) / element, own.size / element)
              .count;
      if (wrong != 0 || std::any_of(found.begin(), begin, changed) ||
          std::any_of(begin + static_cast<std::ptrdiff_t>(own.size), found.end(), changed))
        complain(rank, "ireducescatter");
    }
  }
}

RULE_ON(CollNetRule, CO_13, Must, ApiRange::coll_net(),  //
        .title = "test writes *done on every Success",
        .text = "test writes 0 or 1 to *done each time it succeeds, whatever it held before.",
        .source = "transport/coll_net.cc: sendProxyProgress presets done to 1",
        .why = "NCCL presets 1. If test does not write 0, NCCL takes an unfinished collective for complete.",
        .check = "Tests a reduction that another rank has not posted, with two presets; then until it is complete.",
        .blind = "Requests of calls other than iallreduce.") {
  const std::vector<Member> members = connected();
  const Vectors vectors(members, usual_reduction(members), 1000, random()());
  Collective early = vectors.allreduce(0);
  Rank rank = members[0].rank;
  const bool posted = early.post();
  for (const int preset : {1, 0x5a5a5a5a}) {
    if (!posted) break;
    const CallOutcome outcome = rank.call("test", {{"request", early.request()}, {"*done", preset}});
    expect(outcome.integer("*done") == 0, [&] {
      return fmt::format("{} of a reduction that rank {} has not posted wrote *done = {} (before: {}), expected 0",
                         outcome.call, members[1].rank.name(), outcome.integer("*done"), preset);
    });
  }
  std::vector<Collective> collectives = vectors.allreduces();
  collectives[0] = early;
  finish(collectives);
  vectors.require_results();
}

RULE_ON(
    CollNetRule, CO_14, Must, ApiRange::coll_net(),  //
    .title = "iflush accepts any size, and test of a flush a NULL size",
    .text =
        "If ptrSupport has the CUDA bit, iflush of the result of a collective succeeds for every size, including 0, "
        "and stores NULL or a request that completes. test of it is called without a size.",
    .source = "transport/coll_net.cc: recvProxyProgress: test(request, &done, NULL)",
    .why = "NCCL flushes results in GPU memory. An error ends its progress thread.",
    .check = "Reduces a vector, and flushes 0 bytes, a part and all of the result.",
    .blind = "Whether the GPU sees the data.") {
  const std::vector<Member> members = connected();
  Rank rank = members[0].rank;
  if ((rank.try_properties(Device{0}).integer("ptrSupport") & abi::kPointerCuda) == 0)
    not_applicable("ptrSupport has no CUDA bit: NCCL does not flush host memory");
  const Vectors vectors(members, usual_reduction(members), 1000, random()());
  vectors.reduce();
  bool flushed = false;
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, vectors.result(0).slice.size}) {
    const CallOutcome flush = rank.try_call("iflush", {{"collComm", members[0].comm},
                                                       {"data", vectors.result(0).slice.address},
                                                       {"size", size},
                                                       {"mhandle", vectors.result(0).mhandle}});
    if (!flush.ok() && !flushed)
      not_applicable(fmt::format("{} returned {} for host memory, which NCCL does not flush", flush.call,
                                 result_name(flush.code)));
    require_success(flush);
    flushed = true;
    expect(!flush.untouched("*request"), [&] { return flush.call + " succeeded and did not write *request"; });
    if (flush.pointer("*request") == 0) continue;
    StallLimit limit = stall_limit();
    for (int done = 0; done == 0;) {
      done = rank.call("test", {{"request", flush.pointer("*request")}, {"*done", 1}, {"*size", wire::kNoArray}})
                 .integer("*done");
      expect(done != 0 || !limit.expired(), [&] { return flush.call + " never completes"; });
    }
  }
  vectors.require_results();
}

RULE_ON(CollNetRule, CO_21, Must, ApiRange::coll_net(),  //
        .title = "a call writes *request, whatever it holds",
        .text = "iallreduce stores its request or NULL, even if *request is the pointer of an earlier request.",
        .source = "transport/coll_net.cc: the send side does not clear request slots between operations",
        .why = "The slots of NCCL's send side hold pointers of earlier requests. A call that relies on NULL is lost.",
        .check = "Posts reductions with *request preset to poison, then to the previous request.",
        .blind = "Other collectives.") {
  const std::vector<Member> members = connected();
  const Reduction reduction = usual_reduction(members);
  std::vector<std::uint64_t> previous(members.size());
  for (int n = 0; n < 4; ++n) {
    const Vectors vectors(members, reduction, 100, random()());
    std::vector<Collective> collectives = vectors.allreduces();
    for (std::size_t i = 0; n > 0 && i < members.size(); ++i) collectives[i].preset(previous[i]);
    finish(collectives);
    for (std::size_t i = 0; i < members.size(); ++i) previous[i] = collectives[i].request();
    vectors.require_results();
  }
}

RULE_ON(CollNetRule, CO_26, Should, ApiRange::coll_net(),  //
        .title = "an unsupported reduction is an error",
        .text = "iallreduce with a data type or an operation that reduceSupport refuses returns an error.",
        .source = "init.cc: collNetSupportMatrix: NCCL calls iallreduce for supported pairs only",
        .why = "A reduction that is accepted and not supported gives a wrong result or crashes the job.",
        .check = "Calls iallreduce with an unsupported pair and with values out of range.",
        .blind = "Pairs that are supported on some ranks only.") {
  const auto try_all = [&](bool in_range) {
    const std::vector<Member> members = connected();
    const RegisteredMemory memory = members[0].allocate(256);
    std::vector<Reduction> refused;
    if (!in_range) refused = {{200, 0}, {abi::kFloat32, 200}};
    const std::vector<Reduction> supported = supported_reductions(members);
    for (int type = 0; in_range && type <= abi::kBfloat16; ++type)
      for (int op = 0; op < kCollNetOps; ++op)
        if (std::none_of(supported.begin(), supported.end(),
                         [&](const Reduction& one) { return one.type == type && one.op == op; }))
          refused.push_back({type, op});
    for (const Reduction& one : refused) {
      CallArguments arguments = allreduce_arguments(one, 8, {memory.memory.sub(0, 128), memory.mhandle},
                                                    {memory.memory.sub(128, 128), memory.mhandle});
      arguments.emplace("collComm", members[0].comm);
      Rank rank = members[0].rank;
      CallOutcome outcome = rank.try_call("iallreduce", arguments);
      // A plugin may defer a collective before it looks at its type.
      for (StallLimit limit = stall_limit().times(0.05); outcome.ok() && outcome.pointer("*request") == 0;) {
        if (limit.expired()) break;
        outcome = rank.try_call("iallreduce", arguments);
      }
      expect(!outcome.ok(), [&] { return outcome.call + " succeeded, expected an error: reduceSupport refuses it"; });
    }
  };
  for (const bool in_range : {true, false}) probe([&] { try_all(in_range); });
}

}  // namespace plugfest::conformance
