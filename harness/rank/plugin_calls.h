// Plugin calls of loops in this process. Their arguments lie between canaries, like those of a request `Call`.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "harness/rank/memory.h"

namespace plugfest::rank {

/// Answer of a call that stores one pointer.
struct PointerAnswer : CallAnswer {
  std::uint64_t value = 0;
  bool untouched = false;
};
struct TestAnswer : CallAnswer {
  std::int32_t done = 0;
  std::array<std::int32_t, kSizes> sizes{};
};

struct Piece {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
  std::uint64_t mhandle = 0;
  std::uint64_t phandle = 0;
};

/// `…_slot`, `size_fill`: the value of an output before the call. `start_ns` of an answer is 0 when the plugin has no
/// such function.
namespace calls {
CallAnswer init();
CallAnswer devices();
PointerAnswer reg_mr(std::uint64_t comm, std::uint64_t address, std::uint64_t size, std::uint64_t mhandle_slot);
CallAnswer dereg_mr(std::uint64_t comm, std::uint64_t mhandle);
PointerAnswer isend(std::uint64_t comm, const Piece& piece, std::uint64_t request_slot);
PointerAnswer irecv(std::uint64_t comm, const std::vector<Piece>& pieces, std::uint64_t request_slot);
TestAnswer test(std::uint64_t request, std::int32_t done_slot, std::int32_t size_fill);
CallAnswer irecv_consumed(std::uint64_t comm, std::int32_t n, std::uint64_t request);
CallAnswer set_net_attributes(std::uint64_t context, const std::vector<std::int32_t>& attributes);
CallAnswer close(CommKind kind, std::uint64_t comm);
}  // namespace calls

}  // namespace plugfest::rank
