// One end of a connection: the counters and slots that its proxy and the GPU share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "harness/rank/memory.h"

namespace plugfest::rank {

/// NCCL_STEPS and NCCL_SHARED_STEPS.
inline constexpr std::uint64_t kSteps = 8;
inline constexpr std::uint64_t kSharedSteps = 16;

/// Ends the replay with a message.
struct ReplayFailed {
  std::string what;
};

class ReplayEnd {
 public:
  explicit ReplayEnd(const ReplayConnection& connection);

  const ReplayConnection& plan() const { return *plan_; }
  const ReplayBuffer& buffer(ProxyProtocol protocol) const {
    return plan_->buffers[static_cast<std::size_t>(protocol)];
  }
  std::size_t step_size(ProxyProtocol protocol) const { return buffer(protocol).size / kSteps; }
  /// Whether the proxy chooses the place of each message in the pool.
  bool pooled(ProxyProtocol protocol) const { return plan_->shared && protocol == ProxyProtocol::kSimple; }
  /// The memory of the message that begins at `step`.
  std::byte* slot(ProxyProtocol protocol, std::uint64_t step) const;
  /// "channel 0, tag 1"
  std::string text() const;

  /// ncclConnFifo: -1 while the slot holds no message of the GPU; place in the pool.
  struct Fifo {
    std::int64_t size = -1;
    std::uint64_t offset = 0;
  };
  std::array<Fifo, kSteps> fifo;
  /// Steps that the sending GPU, or the receiving proxy, has filled.
  std::uint64_t tail;
  /// Steps that the receiving GPU has emptied; on the sending side, 8 less than the GPU may fill.
  std::int64_t head;
  /// First step of the proxy's next operation (`resources->step`).
  std::uint64_t step;
  /// Next step of the GPU, and the number of messages so far.
  std::uint64_t gpu_step;
  std::uint64_t messages;

 private:
  const ReplayConnection* plan_;
};

// The formats of a message in a slot: SIMPLE is the payload; LL and LL128 are lines with a flag each, which the
// receiving GPU polls. Source: NCCL 2.28.9, src/include/device.h (ncclLLFifoLine), src/device/prims_ll.h,
// prims_ll128.h.

/// Bytes on the wire of a message with `payload` bytes.
std::size_t wire_size(ProxyProtocol protocol, std::size_t payload);

/// Writes lines (not SIMPLE) with the flag of the message at `step`.
void write_lines(ProxyProtocol protocol, std::byte* slot, const std::byte* payload, std::size_t size,
                 std::uint64_t step);

/// Whether all lines have the flag of the message at `step`.
bool lines_arrived(ProxyProtocol protocol, const std::byte* slot, std::size_t size, std::uint64_t step);

/// Reads the payload of lines.
void read_lines(ProxyProtocol protocol, const std::byte* slot, std::byte* payload, std::size_t size);

}  // namespace plugfest::rank
