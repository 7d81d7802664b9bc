// The commands to a rank of NCCL and its answers: frames of harness/wire/channel.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "harness/nccl/device/types.h"
#include "harness/nccl/pattern.h"
#include "harness/traffic/table.h"
#include "harness/wire/channel.h"

namespace plugfest::nccl {

using traffic::Timing;

/// The rank's end of the channel.
inline constexpr int kControlFd = 3;
/// Code of a failure that is not an ncclResult_t: libnccl.so.2 cannot be used; the text is for the user.
inline constexpr int kCannotLoad = 100;

/// Names of operations, types and operators, as nccl-tests and the command line know them, at their numbers.
const std::vector<std::string>& operation_names();
const std::vector<std::string>& type_names();
const std::vector<std::string>& redop_names();

enum class Operation { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, kSendRecv };

/// Whether an operation reduces; has a root; divides its size by the number of ranks; has an in-place form.
bool reduces(Operation operation);
bool has_root(Operation operation);
bool divides_size(Operation operation);
bool has_in_place(Operation operation);

/// One line of the table.
struct Measurement {
  Operation operation = Operation::kAllReduce;
  std::size_t bytes = 0;  ///< of the larger of a rank's buffers
  device::Type type = device::Type::kFloat;
  RedOp redop = RedOp::kSum;
  int root = 0;
  int warmups = 0;
  int iterations = 1;
  std::uint64_t seed = 0;
  /// Number of calls of an operation, each on its part of the buffers. Only for operations that do not divide the size.
  int pieces = 1;
  PLUGFEST_FIELDS(operation, bytes, type, redop, root, warmups, iterations, seed, pieces)
};

struct Outcome {
  std::size_t count = 0;  ///< elements, as the call gets it
  Timing out_of_place = {};
  std::optional<Timing> in_place = {};  ///< nothing for operations that have no such form
  std::string first_wrong = {};         ///< "in the output, element 17 is 3, not 4"; empty if all are right
  PLUGFEST_FIELDS(count, out_of_place, in_place, first_wrong)

  std::size_t wrong() const { return out_of_place.wrong + (in_place ? in_place->wrong : 0); }
};

/// Mean times and sums of wrong elements; the first wrong element with its rank.
Outcome combined(const std::vector<Outcome>& ranks);

// The commands. `comm`, `comms`, `part`: names of communicators.

/// Loads libnccl.so.2 and selects a device.
struct Load {
  int device = 0;
  PLUGFEST_FIELDS(device)
};
/// Answers with an ncclUniqueId.
struct MakeId {
  PLUGFEST_FIELDS()
};
struct Init {
  std::string comm = {};
  int ranks = 0, rank = 0;
  std::vector<std::byte> id = {};
  /// Abort can end it.
  bool can_be_aborted = false;
  PLUGFEST_FIELDS(comm, ranks, rank, id, can_be_aborted)
};
/// Makes a function of the plugin of EE-07 return an error once, after `calls` more calls.
struct FailCall {
  std::string function = {};
  int calls = 0;
  PLUGFEST_FIELDS(function, calls)
};
/// Answers with the number of ranks of `part`.
struct Split {
  std::string comm = {};
  int color = 0, key = 0;
  std::string part = {};
  PLUGFEST_FIELDS(comm, color, key, part)
};
/// Answers with an outcome.
struct Run {
  std::string comm = {};
  Measurement measurement = {};
  PLUGFEST_FIELDS(comm, measurement)
};
struct Send {
  std::string comm = {};
  int peer = 0;
  std::size_t bytes = 0;
  std::uint64_t seed = 0;
  PLUGFEST_FIELDS(comm, peer, bytes, seed)
};
/// Answers with the number of wrong bytes.
struct Receive {
  std::string comm = {};
  int peer = 0;
  std::size_t bytes = 0;
  std::uint64_t seed = 0;
  PLUGFEST_FIELDS(comm, peer, bytes, seed)
};
/// Repeats an allreduce of floats; each round waits for its result. Answers that it is running after the third round,
/// and at the end with the number of wrong elements of all rounds.
struct Churn {
  std::string comm = {};
  std::size_t bytes = 0;
  int rounds = 0;
  std::uint64_t seed = 0;
  PLUGFEST_FIELDS(comm, bytes, rounds, seed)
};
/// Repeats an alltoall of bytes by puts, as a kernel of the device API: see put_all_to_all(). Answers that it is
/// running after the third round, and at the end with the number of wrong bytes or signals and the first wrong one.
struct PutAllToAll {
  std::string comm = {};
  std::size_t bytes = 0;  ///< from each rank to each rank
  int contexts = 1;
  int rounds = 1;
  std::uint64_t seed = 0;
  PLUGFEST_FIELDS(comm, bytes, contexts, rounds, seed)
};
struct Destroy {
  std::string comm = {};
  PLUGFEST_FIELDS(comm)
};
/// Aborts communicators in one group. Ends the operation that is in progress, which then answers an error.
struct Abort {
  std::vector<std::string> comms = {};
  PLUGFEST_FIELDS(comms)
};

using Command =
    std::variant<Load, MakeId, Init, FailCall, Split, Run, Send, Receive, Churn, PutAllToAll, Destroy, Abort>;

/// "run"
std::string name_of(const Command& command);

struct Answer {
  bool ok = true;
  int code = 0;  ///< if not ok: an ncclResult_t, or kCannotLoad
  std::string text = {};
  std::vector<std::byte> id = {};
  int ranks = 0;
  std::size_t wrong = 0;
  bool is_running = false;  ///< another answer follows
  Outcome outcome = {};
  PLUGFEST_FIELDS(ok, code, text, id, ranks, wrong, is_running, outcome)
};

/// False if the rank has ended.
bool send(wire::Channel& channel, const Command& command);

/// The rank's end.
class Controller {
 public:
  Controller() : channel_(Descriptor(kControlFd)) {}

  /// Waits for the next command; nothing if the controller has ended. Errors: WireError.
  std::optional<Command> next();
  bool answer(const Answer& answer) { return channel_.send(0, 0, wire::encode(answer)); }
  /// Whether the next command is to abort. Does not wait.
  bool wants_abort();

 private:
  wire::Channel channel_;
  std::optional<wire::Frame> ahead_;
};

}  // namespace plugfest::nccl
