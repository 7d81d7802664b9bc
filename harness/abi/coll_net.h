// CollNet interface v6 to v12: symbols `ncclCollNetPlugin_v6` to `_v12`. CollNet performs reductions inside the
// network.
//
// A version has the properties of the net interface of the same version. Versions with one layout share a template.
#pragma once

#include "harness/abi/net.h"

namespace plugfest::abi {

/// `ncclDataType_t` and `ncclRedOp_t`; ints in signatures, since a plugin may get values that its headers do not know.
enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};
enum ReduceOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

/// `ncclNetSGE_v8_t`; v9 and later have a size_t size.
template <typename Size>
struct CollNetPart {
  void* mhandle;
  void* address;
  Size size;
};
static_assert(sizeof(CollNetPart<std::uint32_t>) == 24 && sizeof(CollNetPart<std::size_t>) == 24);

/// v6 and v7.
template <typename P>
struct CollNetV6 {
  using Properties = P;
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(int dev, void* handle, void** listenComm);
  Result (*connect)(void** handles, int nranks, int rank, void* listenComm, void** collComm);
  Result (*reduceSupport)(int dataType, int redOp, int* supported);
  Result (*regMr)(void* collComm, void* data, int size, int type, void** mhandle);
  Result (*regMrDmaBuf)(void* collComm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                        void** mhandle);  // may be null
  Result (*deregMr)(void* collComm, void* mhandle);
  Result (*iallreduce)(void* collComm, void* sendData, void* recvData, int count, int dataType, int redOp,
                       void* sendMhandle, void* recvMhandle, void** request);
  Result (*iflush)(void* collComm, void* data, int size, void* mhandle, void** request);
  Result (*test)(void* request, int* done, int* size);
  Result (*closeColl)(void* collComm);
  Result (*closeListen)(void* listenComm);
};

/// The functions from connect to closeListen of v8 and later.
#define PLUGFEST_COLL_NET_CALLS                                                                                       \
  Result (*connect)(void** handles, int nranks, int rank, void* listenComm, void** collComm);                         \
  Result (*reduceSupport)(int dataType, int redOp, int* supported);                                                   \
  Result (*regMr)(void* collComm, void* data, std::size_t size, int type, void** mhandle);                            \
  Result (*regMrDmaBuf)(void* collComm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,         \
                        void** mhandle); /* may be null */                                                            \
  Result (*deregMr)(void* collComm, void* mhandle);                                                                   \
  Result (*iallreduce)(void* collComm, void* sendData, void* recvData, Count count, int dataType, int redOp,          \
                       void* sendMhandle, void* recvMhandle, void** request);                                         \
  Result (*iallgather)(void* collComm, void* sendData, int nRecvParts, Part* recvParts, std::size_t bytesPerRank,     \
                       std::size_t windowOffset, std::size_t windowBytes, void* sendMhandle,                          \
                       void** request); /* may be null */                                                             \
  Result (*ireducescatter)(void* collComm, int nSendParts, Part* sendParts, void* recvData, std::size_t bytesPerRank, \
                           std::size_t windowOffset, std::size_t windowBytes, int dataType, int redOp,                \
                           void* recvMhandle, void** request); /* may be null */                                      \
  Result (*iflush)(void* collComm, void* data, int size, void* mhandle, void** request);                              \
  Result (*test)(void* request, int* done, int* size);                                                                \
  Result (*closeColl)(void* collComm);                                                                                \
  Result (*closeListen)(void* listenComm);

/// v8, whose iallreduce counts in int.
template <typename P>
struct CollNetV8 {
  using Properties = P;
  using Count = int;
  using Part = CollNetPart<std::uint32_t>;
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(int dev, void* handle, void** listenComm);
  PLUGFEST_COLL_NET_CALLS
};

/// v9 and v10.
template <typename P, typename V>
struct CollNetV9 {
  using Properties = P;
  using Count = std::size_t;
  using Part = CollNetPart<std::size_t>;
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(int dev, void* handle, void** listenComm);
  PLUGFEST_COLL_NET_CALLS
  Result (*makeVDevice)(int* dev, V* members);  // may be null
};

/// v11 and v12.
template <typename P, typename V>
struct CollNetV11 {
  using Properties = P;
  using Count = std::size_t;
  using Part = CollNetPart<std::size_t>;
  const char* name;
  Result (*init)(void** ctx, std::uint64_t commId, Logger logger);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(void* ctx, int dev, void* handle, void** listenComm);
  PLUGFEST_COLL_NET_CALLS
  Result (*makeVDevice)(int* dev, V* members);  // may be null
  Result (*finalize)(void* ctx);
};
#undef PLUGFEST_COLL_NET_CALLS

namespace v6 {
using CollNet = CollNetV6<Properties>;
}
namespace v7 {
using CollNet = CollNetV6<Properties>;
}
namespace v8 {
using CollNet = CollNetV8<Properties>;
}
namespace v9 {
using CollNet = CollNetV9<Properties, VDevice>;
}
namespace v10 {
using CollNet = CollNetV9<Properties, VDevice>;
}
namespace v11 {
using CollNet = CollNetV11<Properties, VDevice>;
}
namespace v12 {
using CollNet = CollNetV11<Properties, VDevice>;
}
static_assert(sizeof(v6::CollNet) == 120 && sizeof(v7::CollNet) == 120 && sizeof(v8::CollNet) == 136);
static_assert(sizeof(v9::CollNet) == 144 && sizeof(v10::CollNet) == 144);
static_assert(sizeof(v11::CollNet) == 152 && sizeof(v12::CollNet) == 152);
static_assert(offsetof(v6::CollNet, regMrDmaBuf) == 64 && offsetof(v6::CollNet, closeListen) == 112);
static_assert(offsetof(v8::CollNet, iallreduce) == 80 && offsetof(v8::CollNet, closeListen) == 128);
static_assert(offsetof(v12::CollNet, iallreduce) == 80 && offsetof(v12::CollNet, test) == 112 &&
              offsetof(v12::CollNet, finalize) == 144);

}  // namespace plugfest::abi
