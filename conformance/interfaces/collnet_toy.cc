// A correct CollNet plugin, v12 and v8, without in-network reduction: the ranks of a communicator send their vectors to
// rank 0 (toy_group.h). It is the base of the mutants of CollNet.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>

#include "conformance/interfaces/toy_group.h"
#include "harness/abi/coll_net.h"

namespace {

using plugfest::abi::Result;
namespace abi = plugfest::abi;
namespace reduction = plugfest::reduction;
namespace toy = plugfest::toy;

using enum reduction::DataType;
constexpr std::array kTypes = {kSigned8,    kUnsigned8, kSigned32, kUnsigned32, kSigned64,
                               kUnsigned64, kHalf,      kFloat,    kDouble,     kBfloat16};
constexpr std::array kOps = {reduction::Operator::kSum, reduction::Operator::kProduct, reduction::Operator::kMax,
                             reduction::Operator::kMin};
constexpr int kDevices = 1;
constexpr int kMaxRequests = 64;

struct Communicator {
  Communicator(const std::vector<std::vector<std::byte>>& handles, int rank, const toy::Listener& listener)
      : group(handles, static_cast<std::size_t>(rank), listener) {}
  toy::Group group;
  int open_requests = 0;
};

struct Request {
  Communicator* communicator;
  std::uint64_t number;
  /// The part of the result that `target` receives.
  std::size_t offset, bytes;
  void* target;
};

bool is_supported(int type, int op) {
  return type >= 0 && static_cast<std::size_t>(type) < kTypes.size() && op >= 0 &&
         static_cast<std::size_t>(op) < kOps.size();
}

// Calls `function`; an exception becomes a line on stderr and a code.
template <typename Function>
Result guarded(const Function& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "CollNet toy: %s\n", error.what());
    return Result::kRemoteError;
  }
}

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
  return guarded([&] {
    auto listener = std::make_unique<toy::Listener>();
    const std::vector<std::byte> bytes = listener->handle();
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(handle));
    *comm = listener.release();
    return Result::kSuccess;
  });
}
Result listen(void*, int device, void* handle, void** comm) { return listen_v8(device, handle, comm); }

Result connect(void** handles, int nranks, int rank, void* listen_comm, void** comm) {
  if (nranks < 1 || nranks > 255 || rank < 0 || rank >= nranks) return Result::kInvalidArgument;
  return guarded([&] {
    std::vector<std::vector<std::byte>> all;
    for (int i = 0; i < nranks; ++i) {
      const auto* const first = static_cast<const std::byte*>(handles[i]);
      all.emplace_back(first, first + abi::kHandleBytes);
    }
    *comm = new Communicator(all, rank, *static_cast<toy::Listener*>(listen_comm));
    return Result::kSuccess;
  });
}

Result reduce_support(int type, int op, int* supported) {
  *supported = is_supported(type, op) ? 1 : 0;
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

// Contributes `own`. Of the result, `target` receives `bytes` bytes at `offset`.
Result post(void* comm, toy::Vector own, std::size_t offset, std::size_t bytes, void* target, void** request) {
  return guarded([&] {
    *request = nullptr;
    auto* const communicator = static_cast<Communicator*>(comm);
    if (communicator->open_requests == kMaxRequests) return Result::kSuccess;
    ++communicator->open_requests;
    *request = new Request{communicator, communicator->group.add(std::move(own)), offset, bytes, target};
    return Result::kSuccess;
  });
}

std::vector<std::byte> copy_of(const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(data);
  return {first, first + bytes};
}

template <typename Count>
Result iallreduce(void* comm, void* source, void* target, Count count, int type, int op, void*, void*, void** request) {
  if (!is_supported(type, op)) return Result::kInvalidArgument;
  const reduction::DataType element = kTypes[static_cast<std::size_t>(type)];
  const std::size_t bytes = static_cast<std::size_t>(count) * reduction::element_bytes(element);
  return post(comm, {element, kOps[static_cast<std::size_t>(op)], copy_of(source, bytes)}, 0, bytes, target, request);
}

// The intersection of the data window with the block of this rank, relative to the data window.
struct OwnPart {
  OwnPart(void* comm, std::size_t block, std::size_t offset, std::size_t window) {
    const std::size_t rank = static_cast<Communicator*>(comm)->group.rank();
    const std::size_t first = std::max(rank * block, offset), last = std::min((rank + 1) * block, offset + window);
    if (first >= last) return;
    begin = first - offset;
    size = last - first;
  }
  std::size_t begin = 0, size = 0;
};

template <typename Part>
Result iallgather(void* comm, void* source, int parts, Part* to, std::size_t block, std::size_t offset,
                  std::size_t window, void*, void** request) {
  if (parts != 1) return Result::kInvalidArgument;
  const OwnPart own(comm, block, offset, window);
  std::vector<std::byte> vector(window);
  if (own.size > 0) std::memcpy(&vector[own.begin], source, own.size);
  return post(comm, {kUnsigned8, reduction::Operator::kOr, std::move(vector)}, 0, window, to[0].address, request);
}

template <typename Part>
Result ireducescatter(void* comm, int parts, Part* from, void* target, std::size_t block, std::size_t offset,
                      std::size_t window, int type, int op, void*, void** request) {
  if (parts != 1 || !is_supported(type, op)) return Result::kInvalidArgument;
  const OwnPart own(comm, block, offset, window);
  return post(
      comm,
      {kTypes[static_cast<std::size_t>(type)], kOps[static_cast<std::size_t>(op)], copy_of(from[0].address, window)},
      own.begin, own.size, target, request);
}

Result iflush(void*, void*, int, void*, void** request) {
  *request = nullptr;  // host memory needs none
  return Result::kSuccess;
}

Result test(void* handle, int* done, int* size) {
  auto* const request = static_cast<Request*>(handle);
  *done = 0;
  const Result result = guarded([&] {
    const auto data = request->communicator->group.take(request->number);
    if (!data) return Result::kSuccess;
    if (request->bytes > 0) std::memcpy(request->target, data->data() + request->offset, request->bytes);
    *done = 1;
    return Result::kSuccess;
  });
  if (result == Result::kSuccess && *done == 0) return result;
  if (size != nullptr) *size = static_cast<int>(request->bytes);
  --request->communicator->open_requests;
  delete request;
  return result;
}

Result close_coll(void* comm) {
  delete static_cast<Communicator*>(comm);
  return Result::kSuccess;
}
Result close_listen(void* comm) {
  delete static_cast<toy::Listener*>(comm);
  return Result::kSuccess;
}
Result finalize(void* context) {
  delete static_cast<int*>(context);
  return Result::kSuccess;
}

template <typename Table>
constexpr Table table() {
  Table table = {};
  table.name = "CollNetToy";
  table.devices = devices;
  table.getProperties = get_properties<typename Table::Properties>;
  table.connect = connect;
  table.reduceSupport = reduce_support;
  table.regMr = reg_mr;
  table.deregMr = dereg_mr;
  table.iallreduce = iallreduce<typename Table::Count>;
  table.iallgather = iallgather<typename Table::Part>;
  table.ireducescatter = ireducescatter<typename Table::Part>;
  table.iflush = iflush;
  table.test = test;
  table.closeColl = close_coll;
  table.closeListen = close_listen;
  if constexpr (requires { table.finalize; }) {
    table.init = init;
    table.listen = listen;
    table.finalize = finalize;
  } else {
    table.init = init_v8;
    table.listen = listen_v8;
  }
  return table;
}

}  // namespace

extern "C" {
extern abi::v12::CollNet ncclCollNetPlugin_v12;
extern abi::v8::CollNet ncclCollNetPlugin_v8;
abi::v12::CollNet ncclCollNetPlugin_v12 = table<abi::v12::CollNet>();
abi::v8::CollNet ncclCollNetPlugin_v8 = table<abi::v8::CollNet>();
}
