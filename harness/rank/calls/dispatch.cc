#include "harness/rank/calls/dispatch.h"

#include <type_traits>

#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

/// The answer of a request of many calls has no code of its own, and gets one that no call may return.
template <class Request>
std::vector<std::byte> execute_encoded(std::span<const std::byte> body) {
  ThreadState* const thread = this_thread_or_null();
  if (thread != nullptr) thread->undefined_code = 0;
  auto answer = execute(decode<Request>(body));
  if constexpr (std::is_base_of_v<CallAnswer, decltype(answer)>) {
    if (thread != nullptr && answer.code == 0) answer.code = thread->undefined_code;
  }
  return encode(answer);
}

/// By Operation.
constexpr std::vector<std::byte> (*kHandlers[])(std::span<const std::byte> body) = {
#define PLUGFEST_HANDLER(request, answer, thread) execute_encoded<request>,
    PLUGFEST_REQUESTS(PLUGFEST_HANDLER)
#undef PLUGFEST_HANDLER
};

}  // namespace

std::vector<std::byte> execute(Operation operation, std::span<const std::byte> body) {
  const auto index = static_cast<std::size_t>(operation);
  if (index >= std::size(kHandlers)) throw WireError("an unknown operation");
  return kHandlers[index](body);
}

}  // namespace plugfest::rank
