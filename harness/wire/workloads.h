// Requests for loops of plugin calls that are too fast for one message per call, and their answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/wire/calls.h"
#include "harness/wire/fields.h"
#include "harness/wire/replay.h"

namespace plugfest::wire {

/// One endpoint of a connection.
struct ProgramComm {
  bool sends = false;
  /// For a sender: the handle to connect to. For a receiver: the listener on which it accepts and which it then closes.
  std::array<std::byte, 128> handle{};
  std::uint64_t listener = 0;
  /// Maximum number of groups in flight.
  std::uint32_t window = 8;
  /// Whether only the oldest request is tested (for a sender: the oldest of each tag); otherwise all in turn.
  bool oldest_only = true;
  /// For plugins with maxRecvs 1, which may ignore tags: sends are posted in the order of their receives, and only the
  /// oldest request of the comm is tested.
  bool in_order = false;
  std::uint64_t group_bytes = 0;
  PLUGFEST_FIELDS(sends, handle, listener, window, oldest_only, in_order, group_bytes)
};

struct ProgramMessage {
  std::int32_t tag = 0;
  std::uint32_t bytes = 0;
  /// Size of the receive buffer.
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
  /// Index into Program::comms; unused for kPause.
  std::uint32_t comm = 0;
  /// For kTransfer: the messages of one group. At a sender in the order in which they are posted; at a receiver in the
  /// order of the buffers, each with the message that it must receive.
  std::vector<ProgramMessage> messages = {};
  std::uint32_t repeat = 1;
  /// For kPause: time without plugin calls. It begins when the plugin has accepted all earlier operations of the rank.
  std::uint32_t pause_us = 0;
  PLUGFEST_FIELDS(action, number, comm, messages, repeat, pause_us)
};

/// Plugin calls on several comms that a rank makes in one loop, with the results that a correct plugin yields.
///
/// The program connects, uses and closes all comms. Steps of one comm take effect in their order; steps of different
/// comms overlap.
struct Program {
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::vector<ProgramComm> comms;
  std::vector<ProgramStep> steps;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(device, context, comms, steps, timeout_ns)
};

/// One endpoint of a stream of messages; see control::StreamPlan.
struct Stream {
  std::uint64_t comm = 0;
  bool sends = true;
  std::uint64_t count = 0;
  std::uint64_t seed = 0;
  std::vector<std::uint32_t> sizes;
  std::uint32_t posted_size = 0;
  std::uint32_t window = 8;
  std::uint32_t group = 1;
  std::int32_t tag = 0;
  bool oldest_only = true;
  /// Value of *request before isend and irecv; with `stale`, its previous value.
  std::uint64_t request_slot = 0;
  bool stale = true;
  std::uint32_t check_every = 1;
  bool check_sizes = false;
  std::uint32_t registrations = 1;
  std::uint64_t stepping_seed = 0;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(comm, sends, count, seed, sizes, posted_size, window, group, tag, oldest_only, request_slot, stale,
                  check_every, check_sizes, registrations, stepping_seed, timeout_ns)
};
/// The answer of a loop of calls.
struct LoopAnswer : CallAnswer {
  /// The first deviation; "" for none. `stalled`: it is that nothing made progress in time.
  std::string broken;
  bool stalled = false;
  PLUGFEST_FIELDS_AFTER(CallAnswer, broken, stalled)
};
struct StreamAnswer : LoopAnswer {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t deferrals = 0;
  std::uint64_t tests = 0;
  /// The first wrong size that test reported; "" for none.
  std::string wrong_size;
  PLUGFEST_FIELDS_AFTER(LoopAnswer, messages, bytes, deferrals, tests, wrong_size)
};
/// See control::ConnectMany.
struct ConnectMany {
  std::vector<std::int32_t> devices;
  std::uint64_t context = 0;
  std::vector<std::array<std::byte, 128>> handles;
  std::vector<std::uint64_t> listeners;
  std::vector<std::uint32_t> order;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(devices, context, handles, listeners, order, timeout_ns)
};
struct ConnectManyAnswer : LoopAnswer {
  std::vector<std::uint64_t> send_comms;
  std::vector<std::uint64_t> recv_comms;
  std::uint64_t calls = 0;
  PLUGFEST_FIELDS_AFTER(LoopAnswer, send_comms, recv_comms, calls)
};
/// The answer to a Program. Messages and bytes count received ones.
struct ProgramAnswer : StreamAnswer {
  /// The step of the first deviation in the schedule.
  std::uint32_t step = 0;
  PLUGFEST_FIELDS_AFTER(StreamAnswer, step)
};
struct ReplayAnswer : CallAnswer {
  ReplayReport report;
  PLUGFEST_FIELDS_AFTER(CallAnswer, report)
};
struct ReplayRegistrationsAnswer : CallAnswer {
  std::uint64_t registrations = 0;
  std::string broken;
  PLUGFEST_FIELDS_AFTER(CallAnswer, registrations, broken)
};

/// Watches zeroed memory until it contains the pattern of `seed`. `size`: a multiple of 128 bytes.
struct Watch {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t seed = 0;
  /// Time limit without progress.
  std::int64_t timeout_ns = 0;
  /// If not 0: the memory is not watched, but compared once, when 8 bytes at this address have the value `signal`. Its
  /// size is then any.
  std::uint64_t signal_address = 0;
  std::uint64_t signal = 0;
  /// Whether to look for words, and for lines, that are partly written.
  bool words = true, lines = true;
  PLUGFEST_FIELDS(address, size, seed, timeout_ns, signal_address, signal, words, lines)
};
struct WatchAnswer : CallAnswer {
  /// The first word or line that was seen partly written, or what was wrong when the signal came; "" if nothing was.
  std::string broken;
  PLUGFEST_FIELDS_AFTER(CallAnswer, broken)
};
/// See control::ThroughputPlan.
struct Throughput {
  std::vector<std::uint64_t> send_comms;
  std::vector<std::uint64_t> receive_comms;
  std::uint64_t size = 0;
  std::uint32_t window = 8;
  std::uint32_t group = 1;
  /// Number of messages on each comm; a multiple of `group`.
  std::uint64_t count = 0;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(send_comms, receive_comms, size, window, group, count, timeout_ns)
};
struct ThroughputAnswer : LoopAnswer {};
/// See control::RoundTripPlan. `starts`: this endpoint sends first, and measures.
struct RoundTrips {
  std::uint64_t send_comm = 0;
  std::uint64_t receive_comm = 0;
  bool starts = false;
  std::uint64_t size = 0;
  std::uint64_t count = 0;
  std::vector<std::uint32_t> per_mille;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(send_comm, receive_comm, starts, size, count, per_mille, timeout_ns)
};
/// One-sided operations: see control::OneSidedLoop.
struct OneSided {
  /// A function, and a word for each of its parameters but the last, *request. No name: no call.
  struct Operation {
    std::string function;
    std::vector<std::uint64_t> words;
    PLUGFEST_FIELDS(function, words)
  };
  Operation repeated, last;
  /// "rmaProgress"; "" if there is none. Its argument is the context, or up to GIN v12 the collComm.
  std::string progress;
  std::uint64_t context = 0, coll_comm = 0;
  std::uint64_t count = 0;
  std::uint32_t window = 1;
  std::uint64_t signal_address = 0;
  bool starts = false;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(repeated, last, progress, context, coll_comm, count, window, signal_address, starts, timeout_ns)
};
struct OneSidedAnswer : LoopAnswer {
  std::uint32_t median_ns = 0;
  PLUGFEST_FIELDS_AFTER(LoopAnswer, median_ns)
};
/// Calls of any interface that one thread makes in their order, and repeats. Slots hold what calls have stored, such as
/// handles, for the arguments of later calls.
struct CallScript {
  enum class Source : std::uint8_t {
    kNumber,  ///< `number`
    kSlot,    ///< the content of slot `number`
    kOutput,  ///< the address of slot `number`, which the call writes
    kBytes,   ///< the address of `bytes`; NULL if there are none
  };
  /// A pointer in `bytes`: the content of a slot.
  struct Pointer {
    std::uint32_t offset = 0, slot = 0;
    PLUGFEST_FIELDS(offset, slot)
  };
  struct Argument {
    Source source = Source::kNumber;
    std::uint64_t number = 0;
    std::vector<std::byte> bytes = {};
    std::vector<Pointer> pointers = {};
    PLUGFEST_FIELDS(source, number, bytes, pointers)
  };
  struct Step {
    std::string function;
    /// What the call is about, for messages: "ProxyStep".
    std::string about;
    std::vector<Argument> arguments;
    /// The call is not made while this slot is NULL.
    std::optional<std::uint32_t> unless_null = {};
    PLUGFEST_FIELDS(function, about, arguments, unless_null)
  };
  std::vector<Step> steps;
  /// Contents of the slots at the start.
  std::vector<std::uint64_t> slots;
  /// Content of a slot before a call that writes it. A slot that still holds it after the call becomes NULL.
  std::uint64_t preset = 0;
  std::uint64_t count = 1;
  /// Calls an empty function instead of the plugin's functions, for comparison.
  bool empty = false;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(steps, slots, preset, count, empty, timeout_ns)
};
struct CallScriptAnswer : CallAnswer {
  std::uint64_t calls = 0;
  /// The first call that returned another code than Success, "startEvent(ProxyStep) returned ncclInternalError (3)",
  /// and the first one that did not write an output, "startEvent(ProxyStep)"; "" if there was none.
  std::string failed, unwritten;
  /// Time of one repetition.
  std::uint32_t median_ns = 0;
  PLUGFEST_FIELDS_AFTER(CallAnswer, calls, failed, unwritten, median_ns)
};
struct RoundTripsAnswer : LoopAnswer {
  /// One value for each of `per_mille`; empty at the endpoint that does not measure.
  std::vector<std::uint32_t> half_trip_ns;
  PLUGFEST_FIELDS_AFTER(LoopAnswer, half_trip_ns)
};

}  // namespace plugfest::wire
