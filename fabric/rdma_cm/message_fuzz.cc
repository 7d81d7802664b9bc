// Fuzz target: the messages of connection managers. A valid message must be equal after it was written and read again.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fabric/rdma_cm/message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plugfest::rdma_cm;
  MessageBytes bytes = {};
  std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  const std::optional<Message> message = decode(bytes);
  if (!message) return 0;
  const MessageBytes written = encode(*message);
  const std::optional<Message> again = decode(written);
  if (!again || encode(*again) != written) std::abort();
  return 0;
}
