#include "harness/nccl/commands.h"

#include <fmt/format.h>

#include <array>
#include <utility>

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

Outcome combined(const std::vector<Outcome>& ranks) {
  Outcome all = ranks.at(0);
  all.out_of_place = {};
  if (all.in_place) all.in_place.emplace();
  all.first_wrong.clear();
  const auto add = [&](Timing& sum, const Timing& one) {
    sum.seconds += one.seconds / static_cast<double>(ranks.size());
    sum.wrong += one.wrong;
  };
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Outcome& one = ranks[rank];
    add(all.out_of_place, one.out_of_place);
    if (all.in_place && one.in_place) add(*all.in_place, *one.in_place);
    if (all.first_wrong.empty() && !one.first_wrong.empty())
      all.first_wrong = fmt::format("rank {}: {}", rank, one.first_wrong);
  }
  return all;
}

std::string name_of(const Command& command) {
  static constexpr std::array<const char*, std::variant_size_v<Command>> kNames = {
      "load", "id", "init", "fail", "split", "run", "send", "receive", "churn", "put", "destroy", "abort"};
  return kNames[command.index()];
}

bool send(wire::Channel& channel, const Command& command) {
  return std::visit(
      [&](const auto& one) { return channel.send(0, static_cast<std::uint32_t>(command.index()), wire::encode(one)); },
      command);
}

namespace {

// Decodes the frame as the command that its kind numbers.
template <std::size_t... Index>
Command decoded(const wire::Frame& frame, std::index_sequence<Index...>) {
  Command command;
  const auto decode_as = [&]<class One>(std::size_t index, std::in_place_type_t<One>) {
    if (frame.header.kind != index) return false;
    command = wire::decode<One>(frame.body);
    return true;
  };
  if (!(decode_as(Index, std::in_place_type<std::variant_alternative_t<Index, Command>>) || ...))
    throw wire::WireError(fmt::format("command {} is unknown", frame.header.kind));
  return command;
}

}  // namespace

std::optional<Command> Controller::next() {
  const std::optional<wire::Frame> frame = ahead_ ? std::exchange(ahead_, std::nullopt) : channel_.receive();
  if (!frame) return std::nullopt;
  return decoded(*frame, std::make_index_sequence<std::variant_size_v<Command>>());
}

bool Controller::wants_abort() {
  if (!ahead_) ahead_ = channel_.poll();
  return ahead_ && ahead_->header.kind == Command(Abort{}).index();
}

}  // namespace plugfest::nccl
