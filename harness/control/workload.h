// Loops of plugin calls that run inside a rank, because one message per call would be too slow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/control/rank.h"
#include "harness/wire/workloads.h"

namespace plugfest::control {

/// A stream of messages. Both endpoints compute size and contents of message k from `seed` and k.
struct StreamPlan {
  std::uint64_t count = 1000;
  std::uint64_t seed = 1;
  /// Each message has one of these sizes, selected by `seed`.
  std::vector<std::uint32_t> sizes = {0, 1, 63, 64, 65, 4095, 4096, 4097, 65536};
  /// Size of each receive buffer; 0: the size of the message.
  std::uint32_t posted_size = 0;
  /// Maximum number of messages in flight at each endpoint; a group counts as one at the receiver.
  std::uint32_t window = 8;
  /// Each receive takes a group of 1 to `group` messages, selected by `seed`. Tags within a group differ; its sends are
  /// posted in a random order.
  std::uint32_t group = 1;
  /// Tag of the first message of a group; the next ones have tag+1, ….
  int tag = 0;
  /// Whether only the oldest request of the comm is tested (TS-06); otherwise all requests in turn.
  bool oldest_only = true;
  /// *request before isend and irecv. With kMarker (XF-19), sends use kStale.
  Preset request = Preset::kStale;
  /// Contents of every n-th message are compared.
  std::uint32_t check_every = 1;
  /// Whether the sizes that test reports for receives are compared; only rules about sizes need that.
  bool check_sizes = false;
  /// Calls of regMr, each followed by deregMr, at each endpoint. The last one is for the messages, the others for parts
  /// of their memory.
  std::uint32_t registrations = 1;
  /// If not 0, some calls of each endpoint are executed instruction by instruction, and its other threads make calls in
  /// between. It selects both. At most one stream of a rank. See harness/rank/stepping.h.
  std::uint64_t stepping_seed = 0;
};

struct StreamOutcome : Outcome {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  /// isend or irecv calls that returned NULL.
  std::uint64_t deferrals = 0;
  std::uint64_t tests = 0;
  /// The first error: "message 17 (8 bytes, tag 7): the buffer holds message 16"; "" if there was none.
  std::string broken;
  /// True when no operation completed within a call's time limit; `broken` then names the oldest operation.
  bool stalled = false;
  /// The first wrong size that test reported: "message 17: sizes[0] = 4096, sent 1000 (tag 7)"; "" if there was none.
  std::string wrong_size;
};

/// Runs one endpoint on `prog` or the comm's thread. The workload allocates, registers and frees its memory. Of the
/// plugin's errors `get` throws only `Hung` and `Crashed`: see `require_clean`.
Started<StreamOutcome> start_sending(const SendComm& comm, const StreamPlan& plan);
Started<StreamOutcome> start_receiving(const RecvComm& comm, const StreamPlan& plan);

/// Errors: `Deviation` or `Stalled` when the outcome has an error.
void require_clean(const StreamOutcome& outcome);

/// Waits for all of the streams. Errors: as `require_clean`, for the stream that failed first. A stalled stream counts
/// after all other failures: the peer of a stream that failed then stalls too.
void require_all_clean(std::vector<Started<StreamOutcome>> streams);

/// Runs both endpoints at the same time and requires both to be clean.
void stream(const SendComm& send, const RecvComm& receive, const StreamPlan& plan = {});

/// Connections that one thread of a rank establishes in one loop, one call for each in turn (CN-09).
struct ConnectMany {
  Device device;
  /// The device of each handle, if they differ; else empty.
  std::vector<Device> devices = {};
  std::vector<Handle> handles;
  std::vector<Listener> listeners;
  /// The order of connects and accepts in the loop: indices into `handles`, continued by indices into `listeners`.
  /// Empty: as listed.
  std::vector<std::uint32_t> order;
};
struct ConnectManyOutcome : Outcome {
  /// The comms in the order of `handles` and of `listeners`; 0 for those that are not done.
  std::vector<std::uint64_t> send_comms;
  std::vector<std::uint64_t> recv_comms;
  std::uint64_t calls = 0;
  std::string broken;
  bool stalled = false;
};
/// Runs on `svc`.
Started<ConnectManyOutcome> start_connecting(const Rank& rank, const ConnectMany& plan);
void require_clean(const ConnectManyOutcome& outcome);

/// Messages between two ranks at the plugin's full speed. The workload allocates the memory; contents are not checked.
struct ThroughputPlan {
  std::uint64_t size = 0;
  /// Maximum number of receives in flight on each comm, 8 in NCCL; and of messages in flight on a sender's comm.
  std::uint32_t window = 8;
  /// Messages of each receive, with the tags 0 to group-1.
  std::uint32_t group = 1;
  /// Messages on each comm; a multiple of `group`.
  std::uint64_t count = 0;
};
struct MeasuredOutcome : Outcome {
  std::string broken;
  bool stalled = false;
};
/// Copies the members that all measurements return. Returns the result for the record of the call.
std::string finish_measurement(MeasuredOutcome& outcome, const wire::LoopAnswer& answer, RankProcess& process);
/// Runs on `prog` of the rank that has all these comms. `start_ns` and `end_ns` of the outcome enclose the transfer.
Started<MeasuredOutcome> start_throughput(const Rank& rank, const std::vector<SendComm>& sends,
                                          const std::vector<RecvComm>& receives, const ThroughputPlan& plan);

struct RoundTripPlan {
  std::uint64_t size = 0;
  std::uint64_t count = 0;
  /// The percentiles to return, in thousandths: 500 is the median.
  std::vector<std::uint32_t> per_mille = {500};
};
struct RoundTripOutcome : MeasuredOutcome {
  /// Halves of round trips, one for each of `per_mille`; empty at the endpoint that does not start.
  std::vector<std::uint32_t> half_trip_ns;
};
Started<RoundTripOutcome> start_round_trips(const Rank& rank, const SendComm& send, const RecvComm& receive,
                                            bool starts, const RoundTripPlan& plan);

/// Errors: `Deviation` or `Stalled` when the outcome has an error.
void require_clean(const MeasuredOutcome& outcome);

/// Outcome of a program (wire/workloads.h).
struct ProgramOutcome : Outcome {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  /// The first deviation and its step; "" if there was none.
  std::string broken;
  std::uint32_t step = 0;
  /// True when no operation completed within a call's time limit.
  bool stalled = false;
};
/// Runs on `prog`. Sets `program.context` and `program.timeout_ns`. The program accepts on its listeners and closes
/// them.
Started<ProgramOutcome> start_program(const Rank& rank, wire::Program program);

/// Outcome of a script of calls. See wire::CallScriptAnswer.
struct CallScriptOutcome : Outcome {
  std::uint64_t calls = 0;
  std::string failed, unwritten;
  std::uint32_t median_ns = 0;
};
/// Runs on `prog` or the thread of `rank`. Sets `script.timeout_ns`. Objects that the calls open are not closed at the
/// end of a rule.
Started<CallScriptOutcome> start_script(const Rank& rank, wire::CallScript script);

struct WatchOutcome : Outcome {
  /// The first word of 8 bytes, or line of 128 bytes, that was seen partly written; "" if there was none.
  std::string broken;
};
/// Reads zeroed memory on a thread that makes no plugin call, as kernels of the protocols LL and LL128 do. Ends when
/// the memory contains the pattern of `seed` (Rank::fill) or has not changed for the time limit of a call. The size of
/// `slice` is a multiple of 128 bytes. `words`, `lines`: whether to look for partly written ones.
Started<WatchOutcome> start_watching(const Rank& rank, const Slice& slice, std::uint64_t seed, bool words = true,
                                     bool lines = true);
/// Reads 8 bytes on a thread that makes no plugin call, until they are `signal`, and then compares `slice` with the
/// pattern of `seed`. `WatchOutcome::broken`: what was wrong.
Started<WatchOutcome> start_awaiting(const Rank& rank, const Slice& word, std::uint64_t signal, const Slice& slice,
                                     std::uint64_t seed);

}  // namespace plugfest::control
