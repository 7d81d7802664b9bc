#include "harness/trace/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

#include "fabric/system/file.h"
#include "harness/abi/profiler.h"
#include "harness/wire/json.h"

namespace plugfest::trace {
namespace {

constexpr int kColl = abi::bit_of(abi::kProfileColl), kP2p = abi::bit_of(abi::kProfileP2p);
constexpr int kProxyOp = abi::bit_of(abi::kProfileProxyOp), kProxyStep = abi::bit_of(abi::kProfileProxyStep);

std::uint64_t size_of(const std::string& datatype) {
  if (datatype.ends_with("8") || datatype.ends_with("e4m3") || datatype.ends_with("e5m2")) return 1;
  if (datatype.ends_with("16")) return 2;
  if (datatype.ends_with("64")) return 8;
  return datatype.ends_with("32") ? 4 : 1;
}

// The time of a state; `otherwise` if the event did not have it.
std::int64_t time_of(const RecordedEvent& event, int state, std::int64_t otherwise) {
  for (const RecordedState& one : event.states)
    if (one.state == state) return std::max(one.time_ns, otherwise);
  return otherwise;
}

// The form in files. A list needs a third of the memory of an object.
struct Document {
  std::vector<Member> members;
  std::vector<Operation> operations;
  std::vector<Arrival> arrivals;
  std::vector<ProcessorWait> processor_waits;
  std::vector<std::vector<std::int64_t>> transfers;
  PLUGFEST_FIELDS(members, operations, arrivals, processor_waits, transfers)
};

constexpr std::size_t kNumbers = 15;  // length of the list that describes a transfer

std::vector<std::int64_t> list_of(const Transfer& one) {
  return {static_cast<std::int64_t>(one.operation),
          one.rank,
          one.peer,
          one.channel,
          static_cast<std::int64_t>(one.chain),
          one.step,
          one.sends ? 1 : 0,
          static_cast<std::int64_t>(one.bytes),
          one.start,
          one.ready,
          one.accepted,
          one.arrived,
          one.flushed,
          one.stop,
          static_cast<std::int64_t>(one.retransmissions)};
}

// Errors: wire::JsonError.
Transfers transfers_in(std::string_view json) {
  auto document = wire::decode_json<Document>(json);
  Transfers result{std::move(document.members),
                   std::move(document.operations),
                   std::move(document.arrivals),
                   std::move(document.processor_waits),
                   {}};
  for (const Arrival& arrival : result.arrivals)
    if (arrival.operation >= result.operations.size()) throw wire::JsonError("arrivals: unknown operation");
  for (const std::vector<std::int64_t>& list : document.transfers) {
    if (list.size() != kNumbers || static_cast<std::uint64_t>(list[0]) >= result.operations.size())
      throw wire::JsonError(fmt::format("transfers: not a list of {} numbers of a known operation", kNumbers));
    const auto number = [&](std::size_t i) { return static_cast<int>(list[i]); };
    const auto whole = [&](std::size_t i) { return static_cast<std::uint64_t>(list[i]); };
    result.transfers.push_back({whole(0), number(1), number(2), number(3), whole(4), number(5), list[6] != 0, whole(7),
                                list[8], list[9], list[10], list[11], list[12], list[13], whole(14)});
  }
  return result;
}

// Collects the transfers of all recordings.
class Collector {
 public:
  explicit Collector(Transfers& result) : result_(result) {}

  // `offset`: added to all times.
  void add(const Recording& recording, std::int64_t offset, std::size_t number, std::vector<TransferSource>* sources) {
    std::unordered_map<std::uint64_t, std::size_t> indices;
    for (std::size_t i = 0; i < recording.events.size(); ++i) indices[recording.events[i].id] = i;
    const auto find = [&](std::uint64_t id) -> const RecordedEvent* {
      const auto found = indices.find(id);
      return found == indices.end() ? nullptr : &recording.events[found->second];
    };
    for (const auto& [key, communicator] : recording.communicators) {
      const Member member{id_of(communicator), static_cast<int>(communicator.number(Key::kRank)), recording.host,
                          number};
      result_.members.push_back(member);
    }
    for (const auto& [thread, start, stop, waited] : recording.processor_waits)
      result_.processor_waits.push_back({number, start + offset, stop + offset, waited});
    std::unordered_map<std::uint64_t, std::uint64_t> chains;
    for (std::size_t i = 0; i < recording.events.size(); ++i) {
      const RecordedEvent& event = recording.events[i];
      const auto communicator = recording.communicators.find(event.communicator);
      if (communicator == recording.communicators.end()) continue;
      const std::string id = id_of(communicator->second);
      const int rank = static_cast<int>(communicator->second.number(Key::kRank));
      if (event.bit == kColl) result_.arrivals.push_back({operation_of(id, event), rank, event.start_ns + offset});
      if (event.bit == kProxyOp) {
        const RecordedEvent* const task = find(event.parent);
        if (task == nullptr) continue;
        // The sends and receives of each pair of ranks are in the same order on both sides.
        const bool sends = event.attributes.number(Key::kSends) != 0;
        const int peer = static_cast<int>(event.attributes.number(Key::kPeer));
        chains[event.id] = next_chain_[{operation_of(id, *task), event.attributes.number(Key::kChannel),
                                        sends ? rank : peer, sends ? peer : rank, sends}]++;
      }
      if (event.bit != kProxyStep || event.stop_ns == 0) continue;
      const RecordedEvent* const proxy = find(event.parent);
      const RecordedEvent* const task = proxy == nullptr ? nullptr : find(proxy->parent);
      if (task == nullptr) continue;
      result_.transfers.push_back(transfer(event, *proxy, operation_of(id, *task), rank, chains[proxy->id], offset));
      if (sources != nullptr) sources->push_back({number, i});
    }
  }

 private:
  static std::string id_of(const Attributes& communicator) {
    return fmt::format("{:x}", static_cast<std::uint64_t>(communicator.number(Key::kId)));
  }

  // All sends and receives of a communicator are one operation.
  std::size_t operation_of(const std::string& communicator, const RecordedEvent& task) {
    const Attributes& about = task.attributes;
    Operation operation{communicator, "Send and Recv", "", "", 0, 0};
    if (task.bit != kP2p) {
      operation.function = about.text(Key::kFunction);
      operation.algorithm = about.text(Key::kAlgorithm);
      operation.protocol = about.text(Key::kProtocol);
      operation.bytes = static_cast<std::uint64_t>(about.number(Key::kCount)) * size_of(about.text(Key::kDatatype));
      operation.sequence = static_cast<std::uint64_t>(about.number(Key::kSequence));
    }
    const auto [found, is_new] =
        operations_.emplace(std::tuple(communicator, operation.function, operation.sequence), operations_.size());
    if (is_new) result_.operations.push_back(std::move(operation));
    return found->second;
  }

  static Transfer transfer(const RecordedEvent& event, const RecordedEvent& proxy, std::size_t operation, int rank,
                           std::uint64_t chain, std::int64_t offset) {
    Transfer transfer{.operation = operation,
                      .rank = rank,
                      .peer = static_cast<int>(proxy.attributes.number(Key::kPeer)),
                      .channel = static_cast<int>(proxy.attributes.number(Key::kChannel)),
                      .chain = chain,
                      .step = static_cast<int>(event.attributes.number(Key::kStep)),
                      .sends = proxy.attributes.number(Key::kSends) != 0,
                      .start = event.start_ns,
                      .stop = event.stop_ns};
    // Earlier states have the size of the message before.
    const int sized = transfer.sends ? abi::kStateSendWait : abi::kStateRecvFlushWait;
    for (const RecordedState& state : event.states)
      if (state.state == sized) transfer.bytes = state.value;
    // A state begins when the wait before it ends. Events have only the states of their direction.
    transfer.ready = time_of(event, abi::kStateSendPeerWait, transfer.start);
    transfer.accepted = time_of(event, transfer.sends ? abi::kStateSendWait : abi::kStateRecvWait, transfer.ready);
    transfer.arrived = time_of(event, abi::kStateRecvFlushWait, transfer.accepted);
    transfer.flushed = time_of(event, abi::kStateRecvGpuWait, transfer.arrived);
    for (std::int64_t* time :
         {&transfer.start, &transfer.ready, &transfer.accepted, &transfer.arrived, &transfer.flushed, &transfer.stop})
      *time += offset;
    return transfer;
  }

  Transfers& result_;
  std::map<std::tuple<std::string, std::string, std::uint64_t>, std::size_t> operations_;
  std::map<std::tuple<std::size_t, std::int64_t, int, int, bool>, std::uint64_t> next_chain_;
};

}  // namespace

OperationKind kind_of(const Operation& operation) {
  return {operation.communicator, operation.function, operation.bytes, operation.algorithm, operation.protocol};
}

std::string title_of(const OperationKind& kind) {
  const auto& [communicator, function, bytes, algorithm, protocol] = kind;
  std::string text = function;
  if (bytes != 0) text += fmt::format(", {} bytes", bytes);
  if (!algorithm.empty()) text += fmt::format(", {} {}", algorithm, protocol);
  return text;
}

std::vector<WaitInterval> Transfer::waits() const {
  if (sends) return {{kSendGpu, start, ready}, {kSendPeer, ready, accepted}, {kSendNetwork, accepted, stop}};
  return {{kReceivePlugin, start, accepted},
          {kReceiveData, accepted, arrived},
          {kReceiveFlush, arrived, flushed},
          {kReceiveGpu, flushed, stop}};
}

std::string name_of(const Transfers& transfers, const std::string& communicator, int rank) {
  for (const Member& member : transfers.members)
    if (member.communicator == communicator && member.rank == rank)
      return fmt::format("rank {} on {}", rank, member.host);
  return fmt::format("rank {}", rank);
}

std::string json_line(const Transfers& transfers) {
  Document document{transfers.members, transfers.operations, transfers.arrivals, transfers.processor_waits, {}};
  for (const Transfer& one : transfers.transfers) document.transfers.push_back(list_of(one));
  return wire::encode_json(document);
}

std::int64_t clock_offset_ns(const Recording& first, const Recording& recording) {
  if (recording.boot_id == first.boot_id && !first.boot_id.empty()) return 0;
  return recording.realtime_offset_ns - first.realtime_offset_ns;
}

std::int64_t first_event_ns(const std::vector<Recording>& recordings) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const Recording& recording : recordings)
    for (const RecordedEvent& event : recording.events)
      first = std::min(first, event.start_ns + clock_offset_ns(recordings.front(), recording));
  return first == std::numeric_limits<std::int64_t>::max() ? 0 : first;
}

Transfers transfers_of(const std::vector<Recording>& recordings, std::vector<TransferSource>* sources) {
  Transfers result;
  Collector collector(result);
  const std::int64_t origin = first_event_ns(recordings);
  for (std::size_t i = 0; i < recordings.size(); ++i)
    collector.add(recordings[i], clock_offset_ns(recordings.front(), recordings[i]) - origin, i, sources);
  return result;
}

std::vector<std::size_t> matched(const Transfers& transfers) {
  std::map<std::tuple<std::size_t, int, int, int, std::uint64_t, int>, std::size_t> receives;
  const auto key = [](const Transfer& one, int from, int to) {
    return std::tuple(one.operation, one.channel, from, to, one.chain, one.step);
  };
  const std::vector<Transfer>& all = transfers.transfers;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!all[i].sends) receives[key(all[i], all[i].peer, all[i].rank)] = i;
  std::vector<std::size_t> others(all.size(), kUnmatched);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].sends) continue;
    const auto found = receives.find(key(all[i], all[i].rank, all[i].peer));
    if (found == receives.end()) continue;
    others[i] = found->second;
    others[found->second] = i;
  }
  return others;
}

Transfers read_transfers(const std::vector<std::string>& paths) {
  if (paths.size() == 1 && !is_recording(paths.front())) {
    const std::string content = read_file(paths.front());
    const std::string start = fmt::format("\n\"{}\":", kTransfersKey);
    const std::size_t at = content.rfind(start), end = content.rfind('}');
    if (at == std::string::npos || end == std::string::npos || end < at)
      throw std::runtime_error(fmt::format(
          "{}: no transfers of NCCL in it: name a file of --trace or of trace merge, or the recordings of all ranks",
          paths.front()));
    try {
      return transfers_in(std::string_view(content).substr(at + start.size(), end - at - start.size()));
    } catch (const wire::JsonError& error) {
      throw std::runtime_error(fmt::format("{}: {}", paths.front(), error.what()));
    }
  }
  std::vector<Recording> recordings;
  for (const std::string& path : paths) recordings.push_back(read_recording(path));
  return transfers_of(recordings);
}

}  // namespace plugfest::trace
