#include "fabric/sharp_coll/out_of_band.h"

#include <array>
#include <climits>
#include <cstdint>

#include "fabric/sharp_coll/failure.h"
#include "fabric/system/text.h"

namespace plugfest::sharp_coll {
namespace {

// An outcome as bytes that all ranks exchange.
struct WireOutcome {
  std::int32_t code = 0;
  std::int32_t rank = 0;
  std::array<char, 504> text = {};
};

void check(int result, const char* what) {
  if (result != 0)
    throw Failure(SHARP_COLL_EOOB, std::string("the caller's out-of-band ") + what + " returned " +
                                       std::to_string(result) + ": see the messages of the caller or of its peers");
}

}  // namespace

void OutOfBand::gather_bytes(const void* value, void* all, std::size_t bytes) const {
  if (place_.size == 1) return;
  check(collectives_.gather(context_, 0, const_cast<void*>(value), all, static_cast<int>(bytes)), "gather");
}

void OutOfBand::broadcast_bytes(void* data, std::size_t bytes) const {
  if (place_.size == 1) return;
  check(collectives_.bcast(context_, data, static_cast<int>(bytes), 0), "bcast");
}

void OutOfBand::broadcast(std::string& text) const {
  std::uint64_t size = text.size();
  broadcast_bytes(&size, sizeof(size));
  if (size > INT_MAX) throw Failure(SHARP_COLL_EOOB, "the caller's out-of-band bcast returned an impossible length");
  text.resize(size);
  if (size != 0) broadcast_bytes(text.data(), size);
}

Outcome OutOfBand::agree(const Outcome& own) const {
  WireOutcome mine;
  mine.code = own.code;
  mine.rank = place_.rank;
  const std::string text = shortened(own.text, mine.text.size() - 40);
  text.copy(mine.text.data(), mine.text.size() - 1);
  WireOutcome first = mine;
  for (const WireOutcome& one : gather(mine)) {
    if (one.code == SHARP_COLL_SUCCESS) continue;
    first = one;
    break;
  }
  broadcast_bytes(&first, sizeof(first));
  first.text.back() = '\0';
  if (first.code == SHARP_COLL_SUCCESS) return {};
  const bool is_own = first.rank == place_.rank;
  return {first.code, is_own ? own.text : "rank " + std::to_string(first.rank) + ": " + first.text.data()};
}

}  // namespace plugfest::sharp_coll
