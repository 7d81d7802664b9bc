// The library of the mutants of CollNet v12 and profiler v6, whose base plugins are libcollnet-toy.so and
// libprofiler-toy.so in its folder. It also exports a net that only reports a device with the name of the CollNet toy's
// device, for rules that compare interfaces.
#include "conformance/mutants/calls_table.h"
#include "harness/abi/net.h"

namespace plugfest::mutants {
namespace {

abi::newest::Net make_net() {
  abi::newest::Net net = {};
  net.name = "Mutant";
  net.init = [](auto...) { return Result::kSuccess; };
  net.devices = [](int* count) {
    *count = 1;
    return Result::kSuccess;
  };
  net.getProperties = [](int, abi::newest::Properties* properties) {
    *properties = {};
    properties->name = "toy0";
    return Result::kSuccess;
  };
  net.finalize = [](void*) { return Result::kSuccess; };
  return net;
}

}  // namespace
}  // namespace plugfest::mutants

using CollNetTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kCollNet, 12, 18>;
using ProfilerTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kProfiler, 6, 5>;
PLUGFEST_EXPORT plugfest::abi::newest::Net ncclNetPlugin_v12;
PLUGFEST_EXPORT CollNetTable ncclCollNetPlugin_v12;
PLUGFEST_EXPORT ProfilerTable ncclProfiler_v6;
plugfest::abi::newest::Net ncclNetPlugin_v12 = plugfest::mutants::make_net();
CollNetTable ncclCollNetPlugin_v12;
ProfilerTable ncclProfiler_v6;
