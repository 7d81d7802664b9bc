// Emulates the GPU: runs the programs of kernels, which fill and empty the slots of the connections.
//
// It runs on the thread of the proxy, between two rounds, and may pause at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/rank/workloads/replay/connection.h"

namespace plugfest::rank {

/// The kernels of one stream.
class GpuStream {
 public:
  GpuStream(const Replay& request, const ReplayStream& stream, std::vector<ReplayEnd>& ends, std::uint64_t seed);

  /// Makes the moves that are possible; true if there was one. Errors: ReplayFailed when a message has wrong contents.
  bool progress();
  bool finished() const { return kernel_ == stream_->kernels.size(); }
  /// Index of the kernel that runs.
  std::size_t kernel() const { return kernel_; }
  /// CLOCK_MONOTONIC at the end of each finished kernel.
  const std::vector<std::int64_t>& ends_ns() const { return ends_ns_; }
  /// What differs in an LL or LL128 message whose flags have all arrived; "" for none.
  const std::string& suspect() const { return suspect_; }
  /// What the first unfinished program waits for; "" when it waits for nothing.
  std::string waits_for() const;

 private:
  struct Program {
    const ReplayProgram* plan = nullptr;
    std::size_t next = 0;
    /// Rounds to pause.
    std::uint32_t pause = 0;
  };

  const ReplayKernel& running() const { return stream_->kernels[kernel_]; }
  void begin_kernel();
  bool progress(Program& program);
  bool can_receive(ReplayEnd& end, std::uint32_t bytes) const;
  bool can_send(const ReplayEnd& end) const;
  /// Whether all received messages have the contents of the plan. For LL and LL128, `suspect_` says what differs, since
  /// the rest may still arrive.
  bool contents_arrived(const ReplayMove& move);
  void move_pattern(const ReplayMove& move);
  void move_data(const ReplayMove& move);
  /// Puts the payload of a message into the slot of `end`.
  void send(ReplayEnd& end, const std::byte* payload, std::uint32_t bytes);
  void pass(ReplayEnd& end, std::uint32_t bytes, bool sends);
  /// The payload of a received message; valid until the next call with the same `scratch`.
  const std::byte* payload(const ReplayEnd& end, std::uint32_t bytes, std::vector<std::byte>& scratch) const;
  std::uint64_t contents(const ReplayEnd& end, std::uint64_t message) const;
  std::string difference(const ReplayEnd& end, const std::byte* got, std::uint32_t bytes) const;
  std::uint64_t draw();

  const Replay* request_;
  const ReplayStream* stream_;
  std::vector<ReplayEnd>* ends_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
  std::size_t kernel_ = 0;
  std::vector<Program> programs_;
  std::vector<std::int64_t> ends_ns_;
  std::vector<std::byte> scratch_, sum_;
  std::string suspect_;
};

}  // namespace plugfest::rank
