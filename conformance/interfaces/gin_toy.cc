// A GIN plugin v14 with one device that the GPU would drive: it initializes, and cannot be connected.
#include <cstdint>

#include "harness/abi/one_sided.h"

namespace {

using plugfest::abi::Result;
namespace abi = plugfest::abi;

char g_name[] = "toy0", g_path[] = "";

constexpr abi::GinV14 kToy = {
    .name = "GinToy",
    .init =
        [](void** context, std::uint64_t id, abi::Logger) {
          *context = new std::uint64_t(id);
          return Result::kSuccess;
        },
    .devices =
        [](int* count) {
          *count = 1;
          return Result::kSuccess;
        },
    .getGinProperties =
        [](abi::GinProperties* properties) {
          *properties = {.supportsStrongSignals = true, .supportsVASignals = false};
          return Result::kSuccess;
        },
    .getProperties =
        [](int, abi::v12::Properties* properties) {
          *properties = {};
          properties->name = g_name;
          properties->pciPath = g_path;
          properties->maxComms = 1;
          properties->maxRecvs = 1;
          properties->netDeviceType = abi::kDeviceGinGdaki;
          return Result::kSuccess;
        },
    .listen = [](void*, int, void*, void**) { return Result::kInvalidUsage; },
    .connect = [](void*, void**, int, int, void*, void**) { return Result::kInvalidUsage; },
    .createContext = [](void*, void*, void**, abi::DeviceHandle**) { return Result::kInvalidUsage; },
    .regMrSym = [](void*, void*, std::size_t, int, std::uint64_t, void**, void**) { return Result::kInvalidUsage; },
    .regMrSymDmaBuf = nullptr,
    .deregMrSym = [](void*, void*) { return Result::kInvalidUsage; },
    .destroyContext = [](void*) { return Result::kInvalidUsage; },
    .closeColl = [](void*) { return Result::kInvalidUsage; },
    .closeListen = [](void*) { return Result::kInvalidUsage; },
    .ginProgress = nullptr,
    .queryLastError = nullptr,
    .finalize =
        [](void* context) {
          delete static_cast<std::uint64_t*>(context);
          return Result::kSuccess;
        },
};

}  // namespace

extern "C" {
extern abi::GinV14 ncclGinPlugin_v14, ncclGinPlugin_v15;
abi::GinV14 ncclGinPlugin_v14 = kToy, ncclGinPlugin_v15 = kToy;
}
