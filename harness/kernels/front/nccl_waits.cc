#include "harness/kernels/front/nccl_waits.h"

#include <array>

namespace plugfest::kernels::front {
namespace {

struct Wait {
  std::string_view header, function, arguments;
};

constexpr std::array<Wait, 7> kWaits = {{
    {"/gin__funcs.h", "waitSignal", "\"signal {} of context {}\", signal, this->contextId, least"},
    {"/gin__funcs.h", "waitSignalMeetShadow",
     "\"signal {} of context {}\", signal, this->contextId, this->_signalShadows[signal]"},
    {"/gin__funcs.h", "waitSignalFollowShadow",
     "\"signal {} of context {}\", signal, this->contextId, this->_signalShadows[signal] + leastDelta"},
    {"/gin__funcs.h", "waitCounter", "\"counter {} of context {}\", counter, this->contextId, least"},
    {"/gin_proxy.h", "flush", "\"flush of puts to rank {}\", pe, 0, nccl::utility::loadConst(&proxyCtx->pis)[pe]"},
    // With --weak, the execution needs the number of the rank and the context for the order of puts.
    {"/gin_proxy.h", "postGfd",
     "\"room for a put to rank {}\", pe, reinterpret_cast<std::uintptr_t>(proxyCtx), "
     "nccl::utility::loadConst(&proxyCtx->pis)[pe] + 1 - nccl::utility::loadConst(&proxyCtx->queueSize)"},
    {"/lsa_barrier__funcs.h", "wait",
     "\"an LSA barrier\", 0, 0, this->epoch + (this->multimem ? this->team.nRanks : 1)"},
}};

}  // namespace

std::string_view wait_of(std::string_view file, std::string_view function) {
  for (const Wait& wait : kWaits)
    if (function == wait.function && file.ends_with(wait.header)) return wait.arguments;
  return {};
}

}  // namespace plugfest::kernels::front
