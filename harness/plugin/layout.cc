// The functions of each version of each interface, and their parameters.
#include "harness/plugin/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <type_traits>

#include "harness/abi/coll_net.h"
#include "harness/abi/downgrade.h"
#include "harness/abi/env.h"
#include "harness/abi/one_sided.h"
#include "harness/abi/profiler.h"
#include "harness/abi/tuner.h"
#include "harness/plugin/layout_builder.h"

namespace plugfest::plugin {
namespace {

// SlotLayout::may_be_null.
constexpr bool kRequired = false, kMayBeNull = true;
// SlotLayout::closed_by of a call that opens no object, and of all calls of the net: a Ledger keeps the objects of the
// net by their kind.
constexpr std::string_view kNotClosed;

// `Signatures`: the table that has the parameters; older versions have only the last of them. A lambda, so that the
// call is one statement.
#define ADD_CALL(member, may_be_null, thread, closed_by, ...)                                              \
  [&] {                                                                                                    \
    if constexpr (requires(T t) { t.member; })                                                             \
      add_function(functions, static_cast<decltype(Signatures::member)*>(nullptr),                         \
                   {{}, #member, offsetof(T, member), may_be_null, thread, closed_by, {}}, {__VA_ARGS__}); \
  }()

// The member functions in the order of Slot, of which a version has the first ones.
template <typename T>
constexpr auto net_functions() {
  using Signatures = abi::newest::Net;
  using enum Shape;
  constexpr Parameter kComm{"comm"}, kData{"data"}, kSize{"size"}, kMemory{"type"}, kRequest{"*request", kOutPointer};
  constexpr Parameter kRegistration{"*mhandle", kOutPointer}, kMhandle{"mhandle"}, kCount{"n"};
  Functions<21> functions;
  ADD_CALL(init, kRequired, "main", kNotClosed, {"*ctx", kOutPointer}, {"commId"}, {"config", kInts},
           {"logger", kLogger}, {"profFunction", kProfiler});
  ADD_CALL(devices, kRequired, "main", kNotClosed, {"*ndev", kOutInt});
  ADD_CALL(getProperties, kRequired, "main", kNotClosed, {"dev"}, {"*props", kProperties});
  ADD_CALL(listen, kRequired, "svc", kNotClosed, {"ctx"}, {"dev"}, {"handle", kHandle}, {"*listenComm", kOutPointer});
  ADD_CALL(connect, kRequired, "svc", kNotClosed, {"ctx"}, {"dev"}, {"handle", kAttempt}, {"*sendComm", kAttempt},
           {"*sendDevComm", kAttempt});
  ADD_CALL(accept, kRequired, "svc", kNotClosed, {"listenComm"}, {"*recvComm", kAttempt}, {"*recvDevComm", kAttempt});
  ADD_CALL(regMr, kRequired, "svc", kNotClosed, kComm, kData, kSize, kMemory, kRegistration);
  ADD_CALL(regMrDmaBuf, kMayBeNull, "svc", kNotClosed, kComm, kData, kSize, kMemory, {"offset"}, {"fd"}, kRegistration);
  ADD_CALL(deregMr, kRequired, "svc", kNotClosed, kComm, kMhandle);
  ADD_CALL(isend, kRequired, "prog", kNotClosed, kComm, kData, kSize, {"tag"}, kMhandle, {"phandle"}, kRequest);
  ADD_CALL(irecv, kRequired, "prog", kNotClosed, kComm, kCount, {"data", kWords}, {"sizes", kWords}, {"tags", kInts},
           {"mhandles", kWords}, {"phandles", kWords}, kRequest);
  ADD_CALL(iflush, kRequired, "prog", kNotClosed, kComm, kCount, {"data", kWords}, {"sizes", kInts},
           {"mhandles", kWords}, kRequest);
  ADD_CALL(test, kRequired, "prog", kNotClosed, {"request"}, {"*done", kOutInt}, {"sizes", kOutSizes});
  ADD_CALL(closeSend, kRequired, "svc", kNotClosed, kComm);
  ADD_CALL(closeRecv, kRequired, "svc", kNotClosed, kComm);
  ADD_CALL(closeListen, kRequired, "svc", kNotClosed, kComm);
  ADD_CALL(getDeviceMr, kMayBeNull, "svc", kNotClosed, kComm, kMhandle, {"*deviceMhandle", kOutPointer});
  ADD_CALL(irecvConsumed, kMayBeNull, "prog", kNotClosed, kComm, kCount, {"request"});
  ADD_CALL(makeVDevice, kMayBeNull, "main", kNotClosed, {"*d", kOutInt}, {"props", kInts});
  ADD_CALL(finalize, kRequired, "main", kNotClosed, {"ctx"});
  ADD_CALL(setNetAttr, kMayBeNull, "prog", kNotClosed, {"ctx"}, {"netAttr", kInts});
  return functions;
}

template <typename T>
constexpr auto coll_net_functions() {
  using Signatures = T;
  using enum Shape;
  constexpr Parameter kComm{"collComm"}, kType{"dataType"}, kOp{"redOp"}, kRequest{"*request", kOutPointer};
  constexpr Parameter kListener{.name = "listenComm", .outlived = true};
  constexpr Parameter kPerRank{"bytesPerRank"}, kOffset{"windowOffset"}, kWindow{"windowBytes"};
  constexpr Parameter kData{"data"}, kSize{"size"}, kMemory{"type"}, kRegistration{"*mhandle", kOutPointer};
  Functions<19> functions;
  ADD_CALL(init, kRequired, "main", "finalize", {"*ctx", kOutPointer}, {"commId"}, {"logger", kLogger});
  ADD_CALL(devices, kRequired, "main", kNotClosed, {"*ndev", kOutInt});
  ADD_CALL(getProperties, kRequired, "main", kNotClosed, {"dev"}, {"*props", kProperties});
  ADD_CALL(listen, kRequired, "svc", "closeListen", {"ctx"}, {"dev"}, {"handle", kHandle},
           {"*listenComm", kOutPointer});
  ADD_CALL(connect, kRequired, "svc", "closeColl", {"handles", kHandles}, {"nranks"}, {"rank"}, kListener,
           {"*collComm", kOutPointer});
  ADD_CALL(reduceSupport, kRequired, "main", kNotClosed, kType, kOp, {"*supported", kOutInt});
  ADD_CALL(regMr, kRequired, "svc", "deregMr", kComm, kData, kSize, kMemory, kRegistration);
  ADD_CALL(regMrDmaBuf, kMayBeNull, "svc", "deregMr", kComm, kData, kSize, kMemory, {"offset"}, {"fd"}, kRegistration);
  ADD_CALL(deregMr, kRequired, "svc", kNotClosed, kComm, {"mhandle"});
  ADD_CALL(iallreduce, kRequired, "prog", kNotClosed, kComm, {"sendData"}, {"recvData"}, {"count"}, kType, kOp,
           {"sendMhandle"}, {"recvMhandle"}, kRequest);
  ADD_CALL(iallgather, kMayBeNull, "prog", kNotClosed, kComm, {"sendData"}, {"nRecvParts"}, {"recvParts", kBytes},
           kPerRank, kOffset, kWindow, {"sendMhandle"}, kRequest);
  ADD_CALL(ireducescatter, kMayBeNull, "prog", kNotClosed, kComm, {"nSendParts"}, {"sendParts", kBytes}, {"recvData"},
           kPerRank, kOffset, kWindow, kType, kOp, {"recvMhandle"}, kRequest);
  ADD_CALL(iflush, kRequired, "prog", kNotClosed, kComm, kData, kSize, {"mhandle"}, kRequest);
  ADD_CALL(test, kRequired, "prog", kNotClosed, {"request"}, {"*done", kOutInt}, {"*size", kOutInt});
  ADD_CALL(closeColl, kRequired, "svc", kNotClosed, kComm);
  ADD_CALL(closeListen, kRequired, "svc", kNotClosed, {"listenComm"});
  ADD_CALL(makeVDevice, kMayBeNull, "main", kNotClosed, {"*d", kOutInt}, {"props", kBytes});
  ADD_CALL(finalize, kRequired, "main", kNotClosed, {"ctx"});
  return functions;
}

template <typename T>
constexpr auto one_sided_functions() {
  using Signatures = T;
  using enum Shape;
  constexpr bool kIsRma = requires(T t) { t.rmaProgress; };
  constexpr bool kHasContexts = requires(T t) { t.iget; };
  constexpr bool kHasData = requires(T t) { t.iput; };
  constexpr bool kHasOptions = std::is_same_v<T, abi::RmaV15> || std::is_same_v<T, abi::RmaV16>;
  constexpr Parameter kComm{"collComm"}, kContext{kIsRma ? "rmaCtx" : "ginCtx"}, kIndex{"context"}, kRank{"rank"};
  constexpr Parameter kNewContext{kIsRma ? "*rmaCtx" : "*ginCtx", kOutPointer}, kConfig{"config", kInts};
  constexpr Parameter kListener{.name = "listenComm", .outlived = true}, kNewComm{"*collComm", kOutPointer};
  constexpr Parameter kAllHandles{"handles", kHandles}, kRanks{"nranks"}, kDevice{"*devHandle", kOutPointer};
  constexpr Parameter kData{"data"}, kSize{"size"}, kType{"type"}, kFlags{"mrFlags"}, kMhandle{"mhandle"};
  constexpr Parameter kRegistration{"*mhandle", kOutPointer}, kDeviceKey{"*ginHandle", kOutPointer};
  constexpr Parameter kFrom{"srcOff"}, kSource{"srcMhandle"}, kTo{"dstOff"}, kTarget{"dstMhandle"};
  constexpr Parameter kSignalAt{"signalOff"}, kSignal{"signalMhandle"}, kValue{"signalValue"}, kOp{"signalOp"};
  constexpr Parameter kStrong{"isStrongSignal"}, kOptions{"optFlags"}, kRequest{"*request", kOutPointer};
  constexpr Parameter kRemoteAt{"remoteOff"}, kRemote{"remoteMhandle"}, kLocalAt{"localOff"}, kLocal{"localMhandle"};
  constexpr Parameter kConnection{"connectionId"};
  Functions<22> functions;
  ADD_CALL(init, kRequired, "main", "finalize", {"*ctx", kOutPointer}, {"commId"}, {"logger", kLogger});
  ADD_CALL(devices, kRequired, "main", kNotClosed, {"*ndev", kOutInt});
  ADD_CALL(getGinProperties, kRequired, "main", kNotClosed, {"ginProps", kInOut});
  ADD_CALL(getRmaProperties, kRequired, "main", kNotClosed, kComm, {"*rmaProps", kOutBool});
  ADD_CALL(getProperties, kRequired, "main", kNotClosed, {"dev"}, {"*props", kProperties});
  ADD_CALL(listen, kRequired, "main", "closeListen", {"ctx"}, {"dev"}, {"handle", kHandle},
           {"*listenComm", kOutPointer});
  if constexpr (std::is_same_v<T, abi::GinV12>)
    ADD_CALL(connect, kRequired, "main", "closeColl", {"ctx"}, kAllHandles, kRanks, kRank, {"nConnections"},
             {"queueDepth"}, kListener, kNewComm);
  else
    ADD_CALL(connect, kRequired, "main", "closeColl", {"ctx"}, kAllHandles, kRanks, kRank, kListener, kNewComm);
  if constexpr (std::is_same_v<T, abi::GinV11>)
    ADD_CALL(createContext, kMayBeNull, "main", "destroyContext", kComm, {"nSignals"}, {"nCounters"}, kNewContext,
             kDevice);
  else if constexpr (std::is_same_v<T, abi::GinV12>)
    ADD_CALL(createContext, kMayBeNull, "main", "destroyContext", kComm, {"nSignals"}, {"nCounters"}, {"nContexts"},
             kNewContext, kDevice);
  else if constexpr (kIsRma)
    ADD_CALL(createContext, kRequired, "main", "destroyContext", kComm, kConfig, kNewContext);
  else
    ADD_CALL(createContext, kRequired, "main", "destroyContext", kComm, kConfig, kNewContext, kDevice);
  if constexpr (kIsRma) {
    ADD_CALL(regMrSym, kRequired, "main", "deregMrSym", kComm, kData, kSize, kType, kFlags, kRegistration);
    ADD_CALL(regMrSymDmaBuf, kMayBeNull, "main", "deregMrSym", kComm, kData, kSize, kType, {"offset"}, {"fd"}, kFlags,
             kRegistration);
  } else {
    ADD_CALL(regMrSym, kRequired, "main", "deregMrSym", kComm, kData, kSize, kType, kFlags, kRegistration, kDeviceKey);
    ADD_CALL(regMrSymDmaBuf, kMayBeNull, "main", "deregMrSym", kComm, kData, kSize, kType, {"offset"}, {"fd"}, kFlags,
             kRegistration, kDeviceKey);
  }
  ADD_CALL(deregMrSym, kRequired, "main", kNotClosed, kComm, kMhandle);
  ADD_CALL(destroyContext, kHasData && !kHasContexts, "main", kNotClosed, kContext);
  ADD_CALL(closeColl, kRequired, "main", kNotClosed, kComm);
  ADD_CALL(closeListen, kRequired, "main", kNotClosed, {"listenComm"});
  if constexpr (std::is_same_v<T, abi::GinV11>) {
    ADD_CALL(iput, kRequired, "prog", kNotClosed, kComm, kFrom, kSource, kSize, kTo, kTarget, kRank, kRequest);
    ADD_CALL(iputSignal, kRequired, "prog", kNotClosed, kComm, kFrom, kSource, kSize, kTo, kTarget, kRank, kSignalAt,
             kSignal, kValue, kOp, kRequest);
  } else if constexpr (!kHasContexts) {
    ADD_CALL(iput, kRequired, "prog", kNotClosed, kComm, kFrom, kSource, kSize, kTo, kTarget, kRank, kConnection,
             kRequest);
    ADD_CALL(iputSignal, kRequired, "prog", kNotClosed, kComm, kFrom, kSource, kSize, kTo, kTarget, kRank, kSignalAt,
             kSignal, kValue, kOp, kConnection, kRequest);
  } else if constexpr (!kHasOptions) {
    ADD_CALL(iput, kRequired, "prog", kNotClosed, kContext, kIndex, kFrom, kSource, kSize, kTo, kTarget, kRank,
             kRequest);
    if constexpr (kIsRma)
      ADD_CALL(iputSignal, kRequired, "prog", kNotClosed, kContext, kIndex, kFrom, kSource, kSize, kTo, kTarget, kRank,
               kSignalAt, kSignal, kValue, kOp, kStrong, kRequest);
    else
      ADD_CALL(iputSignal, kRequired, "prog", kNotClosed, kContext, kIndex, kFrom, kSource, kSize, kTo, kTarget, kRank,
               kSignalAt, kSignal, kValue, kOp, kRequest);
    ADD_CALL(iget, kMayBeNull, "prog", kNotClosed, kContext, kIndex, kRemoteAt, kRemote, kSize, kLocalAt, kLocal, kRank,
             kRequest);
  } else {
    ADD_CALL(iput, kRequired, "prog", kNotClosed, kContext, kIndex, kFrom, kSource, kSize, kTo, kTarget, kRank,
             kOptions, kRequest);
    ADD_CALL(iputSignal, kRequired, "prog", kNotClosed, kContext, kIndex, kFrom, kSource, kSize, kTo, kTarget, kRank,
             kSignalAt, kSignal, kValue, kOp, kStrong, kOptions, kRequest);
    ADD_CALL(iget, kMayBeNull, "prog", kNotClosed, kContext, kIndex, kRemoteAt, kRemote, kSize, kLocalAt, kLocal, kRank,
             kOptions, kRequest);
  }
  ADD_CALL(iflush, kMayBeNull, "prog", kNotClosed, kContext, kIndex, kMhandle, kRank, kRequest);
  ADD_CALL(test, kRequired, "prog", kNotClosed, kComm, {"request"}, {"*done", kOutInt});
  if constexpr (kHasContexts || !kHasData)
    ADD_CALL(ginProgress, kMayBeNull, "prog", kNotClosed, kContext);
  else
    ADD_CALL(ginProgress, kMayBeNull, "prog", kNotClosed, kComm);
  ADD_CALL(rmaProgress, kMayBeNull, "prog", kNotClosed, kContext);
  ADD_CALL(queryLastError, kMayBeNull, "prog", kNotClosed, kContext, {"*hasError", kOutBool});
  ADD_CALL(finalize, kRequired, "main", kNotClosed, {"ctx"});
  return functions;
}

template <typename T, int kApi>
constexpr auto profiler_functions() {
  using Signatures = T;
  using enum Shape;
  constexpr Parameter kContext{"*context", kOutPointer};
  constexpr Parameter kMask{.name = "*eActivationMask", .shape = kOutInt, .lasting = true};
  constexpr Parameter kName{"commName", kText}, kNodes{"nNodes"}, kRanks{"nranks"}, kRank{"rank"};
  constexpr Parameter kLog{"logfn", kLogger};
  Functions<5> functions;
  if constexpr (kApi >= 5)
    ADD_CALL(init, kRequired, "main", "finalize", kContext, {"commId"}, kMask, kName, kNodes, kRanks, kRank, kLog);
  else if constexpr (kApi == 4)
    ADD_CALL(init, kRequired, "main", "finalize", kContext, kMask, kName, {"commId"}, kNodes, kRanks, kRank, kLog);
  else
    ADD_CALL(init, kRequired, "main", "finalize", kContext, kMask);
  ADD_CALL(startEvent, kRequired, "main", "stopEvent", {"context"}, {"*eHandle", kOutPointer}, {"eDescr", kBytes});
  ADD_CALL(stopEvent, kRequired, "main", kNotClosed, {"eHandle"});
  ADD_CALL(recordEventState, kRequired, "main", kNotClosed, {"eHandle"}, {"eState"}, {"eStateArgs", kBytes});
  ADD_CALL(finalize, kRequired, "main", kNotClosed, {"context"});
  return functions;
}

template <typename T>
constexpr auto tuner_functions() {
  using Signatures = T;
  using enum Shape;
  constexpr bool kHasCosts = !std::is_same_v<T, abi::TunerV2>, kIsOld = requires(T t) { t.destroy; };
  constexpr Parameter kContext{"context"}, kNewContext{"*context", kOutPointer}, kLog{"logger", kLogger};
  constexpr Parameter kRanks{"nRanks"}, kNodes{"nNodes"}, kFunction{"collType"}, kSize{"nBytes"};
  constexpr Parameter kOperations{"numPipeOps"}, kCosts{"collCostTable", kInOut}, kChannels{"*nChannels", kOutInt};
  constexpr Parameter kAlgorithms{"numAlgo"}, kProtocols{"numProto"};
  Functions<4> functions;
  if constexpr (kIsOld)
    ADD_CALL(init, kRequired, "main", "destroy", kRanks, kNodes, kLog, kNewContext);
  else
    ADD_CALL(init, kRequired, "main", "finalize", kNewContext, {"commId"}, kRanks, kNodes, kLog,
             {"nvlDomainInfo", kInts}, {"constants", kInOut});
  if constexpr (!kHasCosts)
    ADD_CALL(getCollInfo, kRequired, "main", kNotClosed, kContext, kFunction, kSize, {"collNetSupport"},
             {"nvlsSupport"}, kOperations, {"*algorithm", kOutInt}, {"*protocol", kOutInt}, kChannels);
  else if constexpr (std::is_same_v<T, abi::TunerV3>)
    ADD_CALL(getCollInfo, kRequired, "main", kNotClosed, kContext, kFunction, kSize, kOperations, kCosts, kAlgorithms,
             kProtocols, kChannels);
  else
    ADD_CALL(getCollInfo, kRequired, "main", kNotClosed, kContext, kFunction, kSize, kOperations, kCosts, kAlgorithms,
             kProtocols, {"regBuff"}, kChannels);
  ADD_CALL(destroy, kRequired, "main", kNotClosed, kContext);
  ADD_CALL(finalize, kRequired, "main", kNotClosed, kContext);
  ADD_CALL(getChunkSize, kMayBeNull, "main", kNotClosed, kContext, kFunction, kSize, {"algo"}, {"proto"}, {"nChannels"},
           {"chunkSize", kInOut});
  return functions;
}

template <typename T>
constexpr auto env_functions() {
  using Signatures = T;
  using enum Shape;
  constexpr Parameter kMajor{"ncclMajor"}, kMinor{"ncclMinor"}, kPatch{"ncclPatch"}, kSuffix{"suffix", kText};
  Functions<3> functions;
  if constexpr (std::is_same_v<T, abi::EnvV1>)
    ADD_CALL(init, kRequired, "main", kNotClosed, kMajor, kMinor, kPatch, kSuffix);
  else
    ADD_CALL(init, kRequired, "main", kNotClosed, kMajor, kMinor, kPatch, kSuffix, {"logger", kLogger});
  ADD_CALL(finalize, kRequired, "main", kNotClosed);
  ADD_CALL(getEnv, kRequired, "main", kNotClosed, {"name", kText});
  return functions;
}

constexpr ApiLayout kLayouts[] = {
#define NET_LAYOUT(api)                                                                                        \
  layout<abi::v##api::Net, net_functions<abi::v##api::Net>, abi::v##api::Properties>(InterfaceKind::kNet, api, \
                                                                                     "ncclNetPlugin_v" #api),
#define COLL_NET_LAYOUT(api)                                                                                \
  layout<abi::v##api::CollNet, coll_net_functions<abi::v##api::CollNet>, abi::v##api::CollNet::Properties>( \
      InterfaceKind::kCollNet, api, "ncclCollNetPlugin_v" #api),
#define PROFILER_LAYOUT(table, api) \
  layout<abi::table, profiler_functions<abi::table, api>>(InterfaceKind::kProfiler, api, "ncclProfiler_v" #api)
#define ONE_SIDED_LAYOUT(table, kind, symbol, api) \
  layout<abi::table, one_sided_functions<abi::table>, abi::table::Properties>(InterfaceKind::kind, api, symbol #api)
    PLUGFEST_NET_VERSIONS(NET_LAYOUT) PLUGFEST_NET_VERSIONS(COLL_NET_LAYOUT)
        ONE_SIDED_LAYOUT(GinV11, kGin, "ncclGinPlugin_v", 11),
    ONE_SIDED_LAYOUT(GinV12, kGin, "ncclGinPlugin_v", 12),
    ONE_SIDED_LAYOUT(OneSidedV13, kGin, "ncclGinPlugin_v", 13),
    ONE_SIDED_LAYOUT(GinV14, kGin, "ncclGinPlugin_v", 14),
    ONE_SIDED_LAYOUT(GinV14, kGin, "ncclGinPlugin_v", 15),
    ONE_SIDED_LAYOUT(OneSidedV13, kRma, "ncclRmaPlugin_v", 13),
    ONE_SIDED_LAYOUT(RmaV14, kRma, "ncclRmaPlugin_v", 14),
    ONE_SIDED_LAYOUT(RmaV15, kRma, "ncclRmaPlugin_v", 15),
    ONE_SIDED_LAYOUT(RmaV16, kRma, "ncclRmaPlugin_v", 16),
    PROFILER_LAYOUT(ProfilerV1, 1),
    PROFILER_LAYOUT(ProfilerV1, 2),
    PROFILER_LAYOUT(ProfilerV1, 3),
    PROFILER_LAYOUT(ProfilerV4, 4),
    PROFILER_LAYOUT(ProfilerV5, 5),
    PROFILER_LAYOUT(ProfilerV5, 6),
    PROFILER_LAYOUT(ProfilerV5, 7),
#define TUNER_LAYOUT(api) \
  layout<abi::TunerV##api, tuner_functions<abi::TunerV##api>>(InterfaceKind::kTuner, api, "ncclTunerPlugin_v" #api)
    TUNER_LAYOUT(2),
    TUNER_LAYOUT(3),
    TUNER_LAYOUT(4),
    TUNER_LAYOUT(5),
    TUNER_LAYOUT(6),
    layout<abi::EnvV1, env_functions<abi::EnvV1>>(InterfaceKind::kEnv, 1, "ncclEnvPlugin_v1"),
    layout<abi::EnvV2, env_functions<abi::EnvV2>>(InterfaceKind::kEnv, 2, "ncclEnvPlugin_v2"),
};

constexpr Interface kInterfaces[] = {
    {InterfaceKind::kNet, "net", "net", "ncclNetPlugin_v", kOldestApi, kNewestApi},
    {InterfaceKind::kCollNet, "collnet", "CollNet", "ncclCollNetPlugin_v", kOldestApi, kNewestApi},
    {InterfaceKind::kGin, "gin", "GIN", "ncclGinPlugin_v", 11, 15},
    {InterfaceKind::kRma, "rma", "RMA", "ncclRmaPlugin_v", 13, 16},
    {InterfaceKind::kProfiler, "profiler", "profiler", "ncclProfiler_v", 1, 7},
    {InterfaceKind::kTuner, "tuner", "tuner", "ncclTunerPlugin_v", 2, 6},
    {InterfaceKind::kEnv, "env", "env", "ncclEnvPlugin_v", 1, 2},
};
static_assert(std::size(kInterfaces) == kInterfaceKinds);

}  // namespace

std::span<const Interface> interfaces() { return kInterfaces; }
const Interface& interface_of(InterfaceKind kind) { return kInterfaces[static_cast<std::size_t>(kind)]; }

const SlotLayout* ApiLayout::find(std::string_view function) const {
  const auto found =
      std::find_if(slots.begin(), slots.end(), [&](const SlotLayout& slot) { return slot.name == function; });
  return found == slots.end() ? nullptr : &*found;
}

const ApiLayout& api_layout(InterfaceKind kind, int api) {
  const auto* const found = std::find_if(std::begin(kLayouts), std::end(kLayouts), [&](const ApiLayout& layout) {
    return layout.kind == kind && layout.api == api;
  });
  if (found == std::end(kLayouts))
    throw std::logic_error(fmt::format("{} has no version {}", interface_of(kind).title, api));
  return *found;
}

}  // namespace plugfest::plugin
