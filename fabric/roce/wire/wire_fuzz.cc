// libFuzzer target: the packet parser. Invariant: encoding and parsing an accepted packet yields the same packet.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "fabric/roce/wire/wire.h"

using namespace plugfest::roce;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const std::optional<Packet> packet = decode(bytes);
  if (!packet) return 0;
  std::vector<std::byte> again(kMaxHeaderBytes);
  again.resize(encode(packet->headers, again.data()));
  if (again.size() != header_bytes(packet->headers.transport, packet->headers.operation)) std::abort();
  again.insert(again.end(), packet->payload.begin(), packet->payload.end());
  again.resize(again.size() + packet->headers.pad_bytes + kIcrcBytes);
  const std::optional<Packet> second = decode(again);
  if (!second || again.size() != size) std::abort();
  if (!std::ranges::equal(second->payload, packet->payload)) std::abort();
  std::vector<std::byte> headers(kMaxHeaderBytes);
  headers.resize(encode(second->headers, headers.data()));
  if (!std::equal(headers.begin(), headers.end(), again.begin())) std::abort();
  return 0;
}
