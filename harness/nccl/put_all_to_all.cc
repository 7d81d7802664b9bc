#include "harness/nccl/put_all_to_all.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "harness/nccl/device/gin_context.h"

namespace plugfest::nccl {
namespace {

constexpr int kUntouched = 0xa5;
// The signals 0 to n-1 belong to the barrier of n ranks. The payload's signal has a number far from them, as in kernels
// with many blocks.
constexpr std::uint32_t kPayload = 1000;
// Nobody waits for this signal. A rank that waits sends it after every kReadsPerKeepAlive reads, so that something is
// in flight to a rank that has died.
constexpr std::uint32_t kKeepAlive = kPayload + 1;
constexpr int kReadsPerKeepAlive = 1000;

// Memory that all ranks can put into, the device communicator, and its contexts.
class Puts {
 public:
  Puts(const Member& member, const PutAllToAll& command)
      : member_(member),
        bytes_(command.bytes),
        ranks_(static_cast<std::size_t>(member.ranks)),
        pattern_(command.seed, device::Type::kUint8, RedOp::kSum, member.ranks) {
    const DeviceCommRequirements requirements{.gin_contexts = command.contexts,
                                              .gin_signals = static_cast<int>(kKeepAlive) + 1};
    check(member.api->DevCommCreate(member.comm, &requirements, &comm_), "ncclDevCommCreate");
    if (comm_.gin_contexts < command.contexts)
      throw NcclError{kInvalidUsage,
                      fmt::format("ncclDevCommCreate: {} GIN contexts, not {}", comm_.gin_contexts, command.contexts)};
    for (std::size_t i = 0; i < static_cast<std::size_t>(command.contexts); ++i) {
      if (comm_.gin_types[i] != device::v2_28::kGinProxy)
        throw NcclError{kInvalidUsage,
                        fmt::format("ncclDevCommCreate: GIN of type {}, not of NCCL's proxy", comm_.gin_types[i])};
      contexts_.emplace_back(comm_, i);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      check(member.api->MemAlloc(&memory_[i], ranks_ * bytes_), "ncclMemAlloc");
      check(member.api->CommWindowRegister(member.comm, memory_[i], ranks_ * bytes_, &windows_[i],
                                           device::v2_28::kSymmetricWindow),
            "ncclCommWindowRegister");
    }
  }
  Puts(const Puts&) = delete;
  Puts& operator=(const Puts&) = delete;

  // After the last round. Collective.
  void close() {
    // NCCL gives a later device communicator the same signals, as they are.
    for (const device::GinContext& context : contexts_) {
      for (std::uint32_t peer = 0; peer < ranks_; ++peer) context.reset_signal(peer);
      context.reset_signal(kPayload);
    }
    check(member_.api->DevCommDestroy(member_.comm, &comm_), "ncclDevCommDestroy");
    for (std::size_t i = 0; i < 2; ++i) {
      check(member_.api->CommWindowDeregister(member_.comm, windows_[i]), "ncclCommWindowDeregister");
      check(member_.api->MemFree(memory_[i]), "ncclMemFree");
    }
  }

  // Rounds are numbered from 0 on.
  Differences play(std::uint64_t round) {
    auto* const input = static_cast<std::byte*>(memory_[0]);
    auto* const output = static_cast<std::byte*>(memory_[1]);
    const std::size_t first = round * ranks_ * bytes_;  // position in the pattern
    pattern_.fill(input, member_.rank, first, ranks_ * bytes_);
    std::memset(output, kUntouched, ranks_ * bytes_);
    Differences differences = meet(round);
    if (differences.count > 0) return differences;
    for (std::size_t peer = 0; peer < ranks_; ++peer) put(peer);
    for (const device::GinContext& context : contexts_) {
      // The others add more only in the next round, which this rank has not entered.
      differences = wait_for_signal(context, kPayload, (round + 1) * ranks_);
      if (differences.count > 0) return differences;
    }
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
      const Differences part = pattern_.compare(output + peer * bytes_, static_cast<int>(peer),
                                                first + static_cast<std::size_t>(member_.rank) * bytes_, bytes_);
      if (differences.count == 0 && part.count > 0)
        differences.first = fmt::format("bytes of rank {}: {}", peer, part.first);
      differences.count += part.count;
    }
    for (const device::GinContext& context : contexts_)
      for (int peer = 0; peer < member_.ranks; ++peer) wait([&] { return context.is_flushed(peer); });
    return differences;
  }

 private:
  void check(int code, const char* function) const {
    if (code != kOk) throw NcclError{code, fmt::format("{}: {}", function, member_.api->GetErrorString(code))};
  }

  template <typename Condition>
  void wait(const Condition& holds) const {
    while (!holds()) {
      state_of(member_);
      require_no_abort(member_);
      std::this_thread::yield();
    }
  }

  // Waits for a signal that may not exceed `expected` until this rank signals again.
  Differences wait_for_signal(const device::GinContext& context, std::uint32_t signal, std::uint64_t expected) {
    std::uint64_t value = 0;
    int reads = 0;
    wait([&] {
      if (++reads % kReadsPerKeepAlive == 0) keep_alive();
      return (value = context.read_signal(signal)) >= expected;
    });
    if (value == expected) return {};
    return {.count = 1, .first = fmt::format("signal {} is {}, not {}", signal, value, expected)};
  }

  // Sends a signal to each peer, as other blocks of a kernel would.
  void keep_alive() {
    for (int peer = 0; peer < member_.ranks; ++peer)
      if (contexts_[0].is_flushed(peer)) contexts_[0].signal(peer, kKeepAlive);
  }

  // Returns once all ranks have entered it, like ncclGinBarrierSession. Signal n means that rank n has.
  Differences meet(std::uint64_t round) {
    device::GinContext& context = contexts_[round % contexts_.size()];
    for (int peer = 0; peer < member_.ranks; ++peer)
      wait([&] { return context.signal(peer, static_cast<std::uint32_t>(member_.rank)); });
    Differences differences;
    for (std::uint32_t peer = 0; peer < ranks_ && differences.count == 0; ++peer)
      differences = wait_for_signal(context, peer, round / contexts_.size() + 1);
    return differences;
  }

  void put(std::size_t peer) {
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
      const std::size_t begin = bytes_ * i / contexts_.size(), end = bytes_ * (i + 1) / contexts_.size();
      const device::Place source{windows_[0], peer * bytes_ + begin};
      const device::Place target{windows_[1], static_cast<std::size_t>(member_.rank) * bytes_ + begin};
      wait([&] { return contexts_[i].put(static_cast<int>(peer), target, source, end - begin, kPayload); });
    }
  }

  const Member& member_;
  const std::size_t bytes_, ranks_;
  const Pattern pattern_;
  DeviceComm comm_{};
  void* memory_[2] = {};  // input and output
  Window* windows_[2] = {};
  std::vector<device::GinContext> contexts_;
};

}  // namespace

Differences put_all_to_all(const Member& member, const PutAllToAll& command, const std::function<void()>& is_running) {
  constexpr int kRunning = 3;
  Puts puts(member, command);
  for (int round = 1; round <= command.rounds; ++round) {
    Differences differences = puts.play(static_cast<std::uint64_t>(round - 1));
    if (differences.count > 0) {
      differences.first = fmt::format("in round {}, {}", round, differences.first);
      return differences;
    }
    if (round == kRunning) is_running();
  }
  puts.close();
  return {};
}

}  // namespace plugfest::nccl
