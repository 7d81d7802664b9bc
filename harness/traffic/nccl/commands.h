// What both sides of the control channel of a rank know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/traffic/nccl/device/types.h"
#include "harness/traffic/nccl/pattern.h"

namespace plugfest::nccl {

/// The rank's end of the channel, a stream socket.
inline constexpr int kControlFd = 3;
/// Code of an "error" answer that is no ncclResult_t: libnccl.so.2 cannot be used; the text is for the user.
inline constexpr int kCannotLoad = 100;
/// Text of the answer of a "churn" that goes on.
inline constexpr const char* kRunning = "running";
/// Stands for a line break inside of an answer.
inline constexpr char kLineBreak = '\v';

// What a rank can run: operations, types, operators, sizes. Both sides of the control channel use it.

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
  /// An operation is so many calls, each on its part of the buffers. Only for operations that do not divide the size.
  int pieces = 1;
};

/// The command of a rank: "run COMM …", see main.cc.
std::string run_command(const std::string& communicator, const Measurement& measurement);

/// Time of one operation, and how many elements were wrong after the last.
struct Timing {
  double microseconds = 0;
  std::size_t wrong = 0;
};

}  // namespace plugfest::nccl
