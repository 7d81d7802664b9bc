// Requests of the proxy replay: the operations of the send and receive proxies of one rank, and of its emulated GPU.
//
// The controller plans both endpoints of every connection, so that the messages of a sender and of its receiver agree.
// All numbers are as in NCCL: a connection has a ring of 8 steps for each protocol; an operation moves `nsteps`
// steps, `slice_steps` of them in one message, and begins at a multiple of `chunk_steps`. Source: NCCL 2.28.9,
// src/transport/net.cc (sendProxyProgress, recvProxyProgress), src/proxy.cc (ProxyAppend, progressOps).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/wire/fields.h"

namespace plugfest::wire {

/// Values index ReplayConnection::buffers.
enum class ProxyProtocol : std::uint8_t { kLl, kLl128, kSimple };

/// A buffer of one protocol. `size` 0: the connection has none.
struct ReplayBuffer {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t mhandle = 0;
  PLUGFEST_FIELDS(address, size, mhandle)
};

struct ReplayConnection {
  /// Equal at both endpoints; selects the contents of messages.
  std::uint64_t id = 0;
  bool sends = false;
  /// Several connections may have the same comm.
  std::uint64_t comm = 0;
  /// The sender's rank.
  std::int32_t tag = 0;
  std::uint32_t channel = 0;
  /// Messages of the SIMPLE protocol are in slots of a pool, which is the SIMPLE buffer.
  bool shared = false;
  std::vector<ReplayBuffer> buffers;
  /// Steps and messages of earlier replays; see ReplayAnswer.
  std::uint64_t step = 0;
  std::uint64_t messages = 0;
  /// The rank at the other endpoint, for messages.
  std::string peer;
  PLUGFEST_FIELDS(id, sends, comm, tag, channel, shared, buffers, step, messages, peer)
};

/// Value of ReplaySub::nbytes without a limit.
inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

struct ReplaySub {
  /// Index in Replay::connections.
  std::uint32_t connection = 0;
  std::uint32_t nsteps = 0;
  /// Limit of the posted size of receives.
  std::uint64_t nbytes = kNoLimit;
  PLUGFEST_FIELDS(connection, nsteps, nbytes)
};

/// One proxy operation. Operations with the same `queue` run one after the other.
struct ReplayOperation {
  bool sends = false;
  std::uint32_t queue = 0;
  std::vector<ReplaySub> subs;
  PLUGFEST_FIELDS(sends, queue, subs)
};

/// The GPU's work on one slice: receives one message from each of `receives`, adds them up, and sends the result to
/// each of `sends`.
struct ReplayMove {
  std::vector<std::uint32_t> receives;
  std::vector<std::uint32_t> sends;
  std::uint32_t bytes = 0;
  /// Offset of the input that is added to the received data, and of the output for the result; -1: none. Not used with
  /// Replay::patterns.
  std::int64_t source = -1;
  std::int64_t target = -1;
  PLUGFEST_FIELDS(receives, sends, bytes, source, target)
};

/// Moves that are done in order. The programs of a kernel run concurrently.
struct ReplayProgram {
  std::vector<ReplayMove> moves;
  PLUGFEST_FIELDS(moves)
};

struct ReplayKernel {
  /// The name in messages: "allreduce 3".
  std::string name;
  ProxyProtocol protocol = ProxyProtocol::kSimple;
  std::uint32_t chunk_steps = 1;
  std::uint32_t slice_steps = 1;
  std::vector<ReplayOperation> operations;
  std::vector<ReplayProgram> programs;
  PLUGFEST_FIELDS(name, protocol, chunk_steps, slice_steps, operations, programs)
};

/// Kernels that run one after the other. Their proxy operations begin earlier.
struct ReplayStream {
  std::vector<ReplayKernel> kernels;
  PLUGFEST_FIELDS(kernels)
};

struct Replay {
  /// Number of this replay in the process; see ReplayRegistrations.
  std::uint64_t run = 0;
  std::uint64_t seed = 0;
  std::vector<ReplayConnection> connections;
  std::vector<ReplayStream> streams;
  /// Whether messages have contents that `seed` determines, and each is checked; otherwise the GPU computes with floats
  /// at `input` and `output`.
  bool patterns = true;
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  /// Receives are posted for at most ReplaySub::nbytes, as NCCL does up to 2.29.
  bool limit_posted_size = true;
  /// Maximum number of buffers of one irecv (maxRecvs).
  std::uint32_t most_buffers = 1;
  /// Whether the GPU and the proxy pause at random.
  bool pauses = true;
  /// Whether the answer contains the calls.
  bool trace = false;
  std::uint64_t context = 0;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(run, seed, connections, streams, patterns, input, output, limit_posted_size, most_buffers, pauses,
                  trace, context, timeout_ns)
};

/// An accepted isend or irecv, or a test that was done.
struct ReplayCall {
  enum class Kind : std::uint8_t { kIsend, kIrecv, kTest };
  Kind kind = Kind::kIsend;
  /// Index in Replay::connections, of the first buffer.
  std::uint32_t connection = 0;
  /// CLOCK_MONOTONIC at the start of the call.
  std::int64_t start_ns = 0;
  /// The size of each buffer. For kTest: the sizes that test stored.
  std::vector<std::uint64_t> sizes;
  std::vector<std::int32_t> tags;
  std::uint64_t request = 0;
  PLUGFEST_FIELDS(key("call", kind), connection, start_ns, sizes, tags, request)
};
inline std::array<std::string_view, 3> texts_of(ReplayCall::Kind) { return {"isend", "irecv", "test"}; }

/// The result of a replay; part of ReplayAnswer.
struct ReplayReport {
  /// For each connection: the values of ReplayConnection::step and messages for the next replay.
  std::vector<std::uint64_t> steps;
  std::vector<std::uint64_t> messages;
  /// CLOCK_MONOTONIC at the end of each kernel of the first stream.
  std::vector<std::int64_t> kernel_ends_ns;
  /// Messages and bytes, as the plugin counts them, in both directions.
  std::uint64_t message_count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t deferrals = 0;
  std::uint64_t tests = 0;
  /// The first error; "" if there was none. `stalled`: the error is that no operation completed in time.
  std::string broken;
  bool stalled = false;
  /// The last plugin calls, oldest first, if there was an error.
  std::vector<std::string> last_calls;
  /// With Replay::trace: the first calls, and the number of calls after them, which do not fit into the answer.
  std::vector<ReplayCall> calls;
  std::uint64_t calls_left_out = 0;
  PLUGFEST_FIELDS(steps, messages, kernel_ends_ns, message_count, bytes, deferrals, tests, broken, stalled, last_calls,
                  calls, calls_left_out)
};

/// Registers and deregisters memory on `comms` until replay `run` of this process has ended.
struct ReplayRegistrations {
  std::uint64_t run = 0;
  std::uint64_t seed = 0;
  std::vector<std::uint64_t> comms;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(run, seed, comms, timeout_ns)
};

}  // namespace plugfest::wire
