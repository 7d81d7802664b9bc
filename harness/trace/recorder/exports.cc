// libnccl-profiler-plugfest.so: a profiler plugin, v1 to v6 (NCCL 2.23 to 2.31), that writes NCCL's events to a file.
//
// A handle is a number, not an address: children may name parents that have ended or that belong to another process,
// and the events of an aborted communicator are never stopped. ProxyCtrl is not recorded, because the proxy's thread
// reports several of these events in each round of its loop.
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "harness/abi/profiler.h"
#include "harness/trace/recorder/calls.h"
#include "harness/trace/recorder/descriptor.h"
#include "harness/trace/recorder/older_descriptors.h"
#include "harness/trace/recorder/processor.h"
#include "harness/trace/recorder/records.h"
#include "harness/trace/recorder/writer.h"

namespace plugfest::trace {
namespace {

using abi::Result;

std::uint32_t number_of(void* context) { return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(context)); }

// A new communicator, and whether it can be recorded.
std::pair<std::uint32_t, bool> next_communicator() noexcept {
  static std::atomic<std::uint32_t> communicators = 0;
  return {++communicators, Writer::get().open(std::getenv(kRecordingFolderVariable))};
}

// The records of a communicator's beginning.
Records beginning_of(std::uint32_t number, std::uint64_t id, const char* name, int rank) {
  Records records({monotonic_ns(), number, 0, RecordKind::kBegin, 0, 0, number});
  records.add(Key::kId, id);
  records.add(Key::kRank, rank);
  records.add(Key::kName, name);
  return records;
}

Result begin(void** context, int* mask, int wanted, std::uint64_t id, const char* name, int nodes, int ranks,
             int rank) noexcept {
  const auto [number, works] = next_communicator();
  *context = reinterpret_cast<void*>(std::uintptr_t{number});
  *mask = works ? wanted : 0;
  if (!works) return Result::kSuccess;
  Records records = beginning_of(number, id, name, rank);
  records.add(Key::kRanks, ranks);
  records.add(Key::kNodes, nodes);
  records.write();
  return Result::kSuccess;
}

template <int kWanted>
Result init_v4(void** context, int* mask, const char* name, std::uint64_t hash, int nodes, int ranks, int rank,
               abi::Logger) {
  return begin(context, mask, kWanted, hash, name, nodes, ranks, rank);
}
template <int kWanted>
Result init_v5(void** context, std::uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
               abi::Logger) {
  return begin(context, mask, kWanted, id, name, nodes, ranks, rank);
}

void add_net_event(Records& records, std::int64_t id, const void* data) {
  records.add(Key::kPluginId, static_cast<std::uint64_t>(id));
  if (id != abi::kProfilerQueuePairId || data == nullptr) return;
  abi::ProfilerQueuePairEvent event;
  std::memcpy(&event, data, sizeof event);
  records.add(Key::kDevice, event.device);
  records.add(Key::kWorkRequest, event.wr_id);
  records.add(Key::kOpcode, event.opcode);
  records.add(Key::kQueuePair, event.qpNum);
  records.add(Key::kBytes, std::uint64_t{event.length});
}

template <typename Type>
void add_attributes(Records& records, const Descriptor<Type>& descriptor) {
  switch (std::uint64_t{descriptor.type}) {
    case abi::kProfileColl:
      records.add(Key::kSequence, descriptor.coll.seqNumber);
      records.add(Key::kFunction, descriptor.coll.func);
      records.add(Key::kCount, std::uint64_t{descriptor.coll.count});
      records.add(Key::kDatatype, descriptor.coll.datatype);
      records.add(Key::kRoot, descriptor.coll.root);
      records.add(Key::kChannels, descriptor.coll.nChannels);
      records.add(Key::kAlgorithm, descriptor.coll.algo);
      records.add(Key::kProtocol, descriptor.coll.proto);
      break;
    case abi::kProfileP2p:
      records.add(Key::kFunction, descriptor.p2p.func);
      records.add(Key::kCount, std::uint64_t{descriptor.p2p.count});
      records.add(Key::kDatatype, descriptor.p2p.datatype);
      records.add(Key::kPeer, descriptor.p2p.peer);
      records.add(Key::kChannels, descriptor.p2p.nChannels);
      break;
    case abi::kProfileProxyOp:
      records.add(Key::kChannel, descriptor.proxyOp.channelId);
      records.add(Key::kPeer, descriptor.proxyOp.peer);
      records.add(Key::kSteps, descriptor.proxyOp.nSteps);
      records.add(Key::kChunkBytes, descriptor.proxyOp.chunkSize);
      records.add(Key::kSends, descriptor.proxyOp.isSend);
      if (descriptor.proxyOp.pid != ::getpid()) records.add(Key::kPid, descriptor.proxyOp.pid);
      break;
    case abi::kProfileProxyStep:
      records.add(Key::kStep, descriptor.proxyStep.step);
      break;
    case abi::kProfileKernelCh:
      records.add(Key::kChannel, descriptor.kernelCh.channelId);
      records.add(Key::kTimer, descriptor.kernelCh.pTimer);
      break;
    case abi::kProfileNetPlugin:
      add_net_event(records, descriptor.netPlugin.id, descriptor.netPlugin.data);
      break;
    case abi::kProfileGroupApi:
      records.add(Key::kDepth, descriptor.groupApi.groupDepth);
      break;
    case abi::kProfileCollApi:
      records.add(Key::kFunction, descriptor.collApi.func);
      records.add(Key::kCount, std::uint64_t{descriptor.collApi.count});
      records.add(Key::kDatatype, descriptor.collApi.datatype);
      break;
    case abi::kProfileP2pApi:
      records.add(Key::kFunction, descriptor.p2pApi.func);
      records.add(Key::kCount, std::uint64_t{descriptor.p2pApi.count});
      records.add(Key::kDatatype, descriptor.p2pApi.datatype);
      break;
    case abi::kProfileCeColl:
      records.add(Key::kSequence, descriptor.ceColl.seqNumber);
      records.add(Key::kFunction, descriptor.ceColl.func);
      records.add(Key::kCount, std::uint64_t{descriptor.ceColl.count});
      records.add(Key::kDatatype, descriptor.ceColl.datatype);
      break;
    default:
      break;
  }
}

template <int kWanted, typename Type>
Result start_event(void* context, void** event, void* data) {
  *event = nullptr;
  const auto& descriptor = *static_cast<const Descriptor<Type>*>(data);
  const std::uint64_t type = descriptor.type;
  if (!std::has_single_bit(type) || (type & ~std::uint64_t{kWanted}) != 0 || !Writer::get().works())
    return Result::kSuccess;
  const std::uint64_t number = Writer::get().next_event();
  const bool foreign = type == abi::kProfileProxyOp && descriptor.proxyOp.pid != ::getpid();
  const std::int64_t now = monotonic_ns();
  sample_processor(now);
  Records records({now, number, foreign ? 0 : reinterpret_cast<std::uintptr_t>(descriptor.parentObj),
                   RecordKind::kStart, static_cast<std::uint8_t>(abi::bit_of(static_cast<abi::ProfilerEvent>(type))), 0,
                   number_of(context)});
  add_attributes(records, descriptor);
  records.write();
  *event = reinterpret_cast<void*>(number);
  return Result::kSuccess;
}

Result stop_event(void* event) {
  if (event == nullptr) return Result::kSuccess;
  const std::int64_t now = monotonic_ns();
  sample_processor(now);
  Records({now, reinterpret_cast<std::uintptr_t>(event), 0, RecordKind::kStop, 0, 0, 0}).write();
  return Result::kSuccess;
}

Result record_event_state(void* event, int state, void* arguments) {
  if (event == nullptr || state < 0 || state > abi::kLastProfilerState) return Result::kSuccess;
  const std::uint64_t number = reinterpret_cast<std::uintptr_t>(event);
  if (state == abi::kStateSendWait || state == abi::kStateRecvWait) on_posted(number);
  // The proxy records SendPeerWait again in each round until the plugin accepts the message.
  if (!Writer::get().changes_state(number, static_cast<std::uint8_t>(state))) return Result::kSuccess;
  std::uint64_t value = 0;
  if (arguments != nullptr) std::memcpy(&value, arguments, sizeof value);
  Records({monotonic_ns(), number, value, RecordKind::kState, static_cast<std::uint8_t>(state), 0, 0}).write();
  return Result::kSuccess;
}

Result finalize(void* context) {
  Records({monotonic_ns(), number_of(context), 0, RecordKind::kEnd, 0, 0, number_of(context)}).write();
  Writer::get().flush();
  return Result::kSuccess;
}

template <typename Table, int kWanted, typename Type, typename Init>
constexpr Table table(Init init) {
  return {"Plugfest", init, start_event<kWanted, Type>, stop_event, record_event_state, finalize};
}

// A communicator of v1 to v3, whose id and rank come with its operations.
struct OlderCommunicator {
  std::uint32_t number;
  std::atomic<bool> is_known = false;
};

template <int kWanted>
Result init_v1(void** context, int* mask) {
  const auto [number, works] = next_communicator();
  auto* const communicator = new (std::nothrow) OlderCommunicator{number};
  *context = communicator;
  *mask = works && communicator != nullptr ? kWanted : 0;
  return Result::kSuccess;
}

void tell_communicator(OlderCommunicator& communicator, std::uint64_t id, const char* name, int rank) {
  if (communicator.is_known.exchange(true)) return;
  beginning_of(communicator.number, id, name, rank).write();
}

template <int kWanted, typename Older>
Result start_older_event(void* context, void** event, void* data) {
  *event = nullptr;
  if (context == nullptr) return Result::kSuccess;
  auto& communicator = *static_cast<OlderCommunicator*>(context);
  const auto& older = *static_cast<const Older*>(data);
  if (older.type == abi::kProfileColl)
    tell_communicator(communicator, older.coll.commHash, older.coll.name, older.rank);
  if (older.type == abi::kProfileP2p) tell_communicator(communicator, older.p2p.commHash, older.p2p.name, older.rank);
  Descriptor<std::uint64_t> descriptor = newer(older);
  return start_event<kWanted, std::uint64_t>(reinterpret_cast<void*>(std::uintptr_t{communicator.number}), event,
                                             &descriptor);
}

Result finalize_older(void* context) {
  const std::unique_ptr<OlderCommunicator> communicator(static_cast<OlderCommunicator*>(context));
  return communicator == nullptr ? Result::kSuccess
                                 : finalize(reinterpret_cast<void*>(std::uintptr_t{communicator->number}));
}

template <int kWanted, typename Older>
constexpr abi::ProfilerV1 older_table() {
  return {"Plugfest", init_v1<kWanted>,   start_older_event<kWanted, Older>,
          stop_event, record_event_state, finalize_older};
}

}  // namespace
}  // namespace plugfest::trace

// plugfest nccl lets NCCL find the tables of net plugins through this function.
extern "C" [[gnu::visibility("default")]] void* plugfest_record_calls(const char* symbol, void* table) noexcept {
  return plugfest::trace::record_calls(symbol, table);
}

#define PLUGFEST_RECORDER(version, Table, ...)                                        \
  extern "C" {                                                                        \
  [[gnu::visibility("default")]] extern plugfest::abi::Table ncclProfiler_v##version; \
  plugfest::abi::Table ncclProfiler_v##version = __VA_ARGS__;                         \
  }
namespace plugfest::trace {
// All bits that a version knows except ProxyCtrl's, 0x20.
constexpr int kWantedV1 = 0x1f, kWantedV3 = 0xdf, kWantedV5 = 0xfdf, kWantedV6 = 0x7fdf;
PLUGFEST_RECORDER(1, ProfilerV1, older_table<kWantedV1, DescriptorV1>())
PLUGFEST_RECORDER(2, ProfilerV1, older_table<kWantedV1, DescriptorV2>())
PLUGFEST_RECORDER(3, ProfilerV1, older_table<kWantedV3, DescriptorV3>())
PLUGFEST_RECORDER(4, ProfilerV4, table<abi::ProfilerV4, kWantedV3, std::uint8_t>(init_v4<kWantedV3>))
PLUGFEST_RECORDER(5, ProfilerV5, table<abi::ProfilerV5, kWantedV5, std::uint64_t>(init_v5<kWantedV5>))
PLUGFEST_RECORDER(6, ProfilerV5, table<abi::ProfilerV5, kWantedV6, std::uint64_t>(init_v5<kWantedV6>))
}  // namespace plugfest::trace
