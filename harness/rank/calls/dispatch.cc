#include "harness/rank/calls/dispatch.h"

namespace plugfest::rank {

namespace {

template <class Request>
std::vector<std::byte> execute_encoded(std::span<const std::byte> body) {
  return encode(execute(decode<Request>(body)));
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
