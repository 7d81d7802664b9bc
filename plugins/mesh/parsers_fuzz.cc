// libFuzzer target for the input that a peer can send to the mesh plugin. Byte 0 selects the parser: 0 means a handle;
// another value means a stream of messages, fed in pieces of that many bytes. A parsed message that is encoded and
// parsed again must give the same bytes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/log.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void read_handle(std::span<const std::uint8_t> bytes) {
  std::array<std::uint8_t, mesh::kHandleBytes> handle = {};
  std::copy_n(bytes.begin(), std::min(bytes.size(), handle.size()), handle.begin());
  mesh::read_attempt(handle);
  const mesh::Handle decoded = mesh::decode_handle(handle);
  require(decoded.addresses.size() <= decoded.address_count);
}

void read_messages(std::span<const std::uint8_t> bytes, std::size_t piece) {
  mesh::MessageParser parser;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(piece, bytes.size()));
    bytes = bytes.subspan(part.size());
    parser.feed(part);
    while (const auto message = parser.next()) {
      const std::vector<std::uint8_t> encoded = mesh::encode(*message);
      mesh::MessageParser again;
      again.feed(encoded);
      const auto second = again.next();
      require(second && mesh::encode(*second) == encoded && !again.next());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    const std::span<const std::uint8_t> rest(data + 1, size - 1);
    if (data[0] == 0)
      read_handle(rest);
    else
      read_messages(rest, data[0]);
  } catch (const mesh::Failure&) {
  }
  return 0;
}
