// A program: plugin calls on several comms that a rank makes in one loop, with the results that a correct plugin
// yields.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/wire/fields.h"

namespace plugfest::rank {

/// One end of a connection.
struct ProgramComm {
  bool sends = false;
  /// Of a sender: the handle that it connects to. Of a receiver: the listener that it accepts on and then closes.
  std::array<std::byte, 128> handle{};
  std::uint64_t listener = 0;
  /// Groups in flight, at most.
  std::uint32_t window = 8;
  /// Only the oldest request is tested (of a sender: the oldest of each tag); else all in turn.
  bool oldest_only = true;
  /// For plugins with maxRecvs 1, which need not look at tags: sends are posted in the order of their receives, and
  /// only the oldest request of the comm is tested.
  bool in_order = false;
  /// Bytes of memory for one group.
  std::uint64_t group_bytes = 0;
  PLUGFEST_FIELDS(sends, handle, listener, window, oldest_only, in_order, group_bytes)
};

/// One message of a transfer.
struct ProgramMessage {
  std::int32_t tag = 0;
  std::uint32_t bytes = 0;
  /// Bytes for which the receive is posted.
  std::uint32_t room = 0;
  /// Seed of the contents; in repetition i, mix(contents, i).
  std::uint64_t contents = 0;
  PLUGFEST_FIELDS(tag, bytes, room, contents)
};

/// Memory for a message: its room, and at least 64 bytes that no message may write.
inline std::size_t program_stride(const ProgramMessage& message) {
  return (std::size_t{message.room} + 64 + 63) / 64 * 64;
}

/// kRegister: registers new memory at the address of the comm's old memory, which is deregistered and unmapped.
enum class ProgramAction : std::uint8_t { kConnect, kTransfer, kRegister, kPause, kClose };

struct ProgramStep {
  ProgramAction action = ProgramAction::kTransfer;
  /// Index of the step in the schedule, for messages.
  std::uint32_t number = 0;
  /// Index into Program::comms; not of kPause.
  std::uint32_t comm = 0;
  /// kTransfer: the messages of one group. At a sender in the order in which they are posted; at a receiver in the
  /// order of the buffers, each with the message that it must get.
  std::vector<ProgramMessage> messages = {};
  std::uint32_t repeat = 1;
  /// kPause: time without plugin calls. It begins when the plugin has accepted all earlier operations of the rank.
  std::uint32_t pause_us = 0;
  PLUGFEST_FIELDS(action, number, comm, messages, repeat, pause_us)
};

/// All comms are connected, used and closed by the program. Steps of one comm take effect in their order; those of
/// different comms overlap.
struct Program {
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::vector<ProgramComm> comms;
  std::vector<ProgramStep> steps;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(device, context, comms, steps, timeout_ns)
};

}  // namespace plugfest::rank
