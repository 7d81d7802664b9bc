#include "harness/traffic/nccl/commands.h"

#include <fmt/format.h>

namespace plugfest::nccl {

const std::vector<std::string>& operation_names() {
  static const std::vector<std::string> names = {"allreduce", "allgather", "reducescatter", "broadcast",
                                                 "reduce",    "alltoall",  "sendrecv"};
  return names;
}

const std::vector<std::string>& type_names() {
  static const std::vector<std::string> names = {"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                                 "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
  return names;
}

const std::vector<std::string>& redop_names() {
  static const std::vector<std::string> names = {"sum", "prod", "max", "min", "avg"};
  return names;
}

bool reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter ||
         operation == Operation::kReduce;
}

bool has_root(Operation operation) { return operation == Operation::kBroadcast || operation == Operation::kReduce; }

bool divides_size(Operation operation) {
  return operation == Operation::kAllGather || operation == Operation::kReduceScatter ||
         operation == Operation::kAllToAll;
}

bool has_in_place(Operation operation) {
  return operation != Operation::kAllToAll && operation != Operation::kSendRecv;
}

std::string run_command(const std::string& communicator, const Measurement& one) {
  return fmt::format("run {} {} {} {} {} {} {} {} {} {}", communicator, static_cast<int>(one.operation), one.bytes,
                     static_cast<int>(one.type), static_cast<int>(one.redop), one.root, one.warmups, one.iterations,
                     one.seed, one.pieces);
}

}  // namespace plugfest::nccl
