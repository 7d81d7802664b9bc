// A CollNet plugin, v12 and v8, that supports communicators of one rank: every reduction is a copy. It is correct: NCCL
// treats it as a network that cannot form larger groups.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "harness/abi/coll_net.h"

namespace {

using plugfest::abi::Result;
namespace abi = plugfest::abi;

constexpr std::size_t kElementBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr int kTypes = 12, kOps = 4;
constexpr int kDevices = 1;

struct Listener {
  std::uint64_t number;
};
struct Communicator {
  std::atomic<int> open_requests = 0;
};
struct Request {
  Communicator* communicator;
  int bytes;
};

std::atomic<std::uint64_t> g_listeners = 0;

Result init(void** context, std::uint64_t, abi::Logger logger) {
  if (logger != nullptr) logger(abi::kLogInfo, abi::kLogInit, __FILE__, __LINE__, "CollNet toy: %d device", kDevices);
  *context = new int(0);
  return Result::kSuccess;
}
Result init_v8(abi::Logger) { return Result::kSuccess; }

Result devices(int* count) {
  *count = kDevices;
  return Result::kSuccess;
}

template <typename Properties>
Result get_properties(int device, Properties* properties) {
  if (device < 0 || device >= kDevices) return Result::kInvalidArgument;
  *properties = {};
  properties->name = "toy0";
  properties->pciPath = nullptr;
  properties->guid = 1;
  properties->ptrSupport = abi::kPointerHost;
  properties->speed = 10000;
  properties->port = 1;
  properties->maxComms = 1024;
  properties->maxRecvs = 1;
  if constexpr (requires { properties->maxCollBytes; }) {
    properties->maxP2pBytes = abi::kMaxNetSizeBytes;
    properties->maxCollBytes = abi::kMaxNetSizeBytes;
    properties->vProps.ndevs = 1;
  }
  if constexpr (requires { properties->railId; }) properties->railId = properties->planeId = abi::kIdUndefined;
  return Result::kSuccess;
}

Result listen_v8(int device, void* handle, void** comm) {
  if (device < 0 || device >= kDevices) return Result::kInvalidArgument;
  auto* const listener = new Listener{++g_listeners};
  std::memcpy(handle, &listener->number, sizeof listener->number);
  *comm = listener;
  return Result::kSuccess;
}
Result listen(void*, int device, void* handle, void** comm) { return listen_v8(device, handle, comm); }

Result connect(void** handles, int nranks, int rank, void* listen_comm, void** comm) {
  if (nranks != 1 || rank != 0) return Result::kInvalidUsage;
  if (std::memcmp(handles[0], listen_comm, sizeof(std::uint64_t)) != 0) return Result::kInvalidArgument;
  *comm = new Communicator;
  return Result::kSuccess;
}

Result reduce_support(int type, int op, int* supported) {
  *supported = type >= 0 && type < kTypes && op >= 0 && op < kOps ? 1 : 0;
  return Result::kSuccess;
}

Result reg_mr(void*, void*, std::size_t, int type, void** mhandle) {
  if (type != abi::kPointerHost) return Result::kInvalidArgument;
  *mhandle = new int(type);
  return Result::kSuccess;
}
Result dereg_mr(void*, void* mhandle) {
  delete static_cast<int*>(mhandle);
  return Result::kSuccess;
}

template <typename Count>
Result iallreduce(void* comm, void* source, void* target, Count count, int type, int op, void*, void*, void** request) {
  if (type < 0 || type >= kTypes || op < 0 || op >= kOps) return Result::kInvalidArgument;
  const std::size_t bytes = static_cast<std::size_t>(count) * kElementBytes[type];
  std::memmove(target, source, bytes);
  auto* const communicator = static_cast<Communicator*>(comm);
  ++communicator->open_requests;
  *request = new Request{communicator, static_cast<int>(std::min<std::size_t>(bytes, 0x7fffffff))};
  return Result::kSuccess;
}

Result iflush(void*, void*, int, void*, void** request) {
  *request = nullptr;  // host memory needs none
  return Result::kSuccess;
}

Result test(void* handle, int* done, int* size) {
  auto* const request = static_cast<Request*>(handle);
  *done = 1;
  if (size != nullptr) *size = request->bytes;
  --request->communicator->open_requests;
  delete request;
  return Result::kSuccess;
}

Result close_coll(void* comm) {
  delete static_cast<Communicator*>(comm);
  return Result::kSuccess;
}
Result close_listen(void* comm) {
  delete static_cast<Listener*>(comm);
  return Result::kSuccess;
}
Result finalize(void* context) {
  delete static_cast<int*>(context);
  return Result::kSuccess;
}

}  // namespace

extern "C" {
extern abi::v12::CollNet ncclCollNetPlugin_v12;
extern abi::v8::CollNet ncclCollNetPlugin_v8;
abi::v12::CollNet ncclCollNetPlugin_v12 = {"CollNetToy",
                                           init,
                                           devices,
                                           get_properties<abi::v12::Properties>,
                                           listen,
                                           connect,
                                           reduce_support,
                                           reg_mr,
                                           nullptr,
                                           dereg_mr,
                                           iallreduce<std::size_t>,
                                           nullptr,
                                           nullptr,
                                           iflush,
                                           test,
                                           close_coll,
                                           close_listen,
                                           nullptr,
                                           finalize};
abi::v8::CollNet ncclCollNetPlugin_v8 = {"CollNetToy",
                                         init_v8,
                                         devices,
                                         get_properties<abi::v8::Properties>,
                                         listen_v8,
                                         connect,
                                         reduce_support,
                                         reg_mr,
                                         nullptr,
                                         dereg_mr,
                                         iallreduce<int>,
                                         nullptr,
                                         nullptr,
                                         iflush,
                                         test,
                                         close_coll,
                                         close_listen};
}
