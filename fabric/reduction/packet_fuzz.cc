// Fuzzes what an aggregation node receives: the packet, and the node's state after it.
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/reduction/node.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plugfest::reduction;
  const Address child = {1, 5000};
  AggregationNode node([](const Address&, std::span<const std::byte>) {});
  node.configure({.group = 1, .fragment_window = 2, .max_payload = 4096, .parent = {}, .children = {child, {2, 5000}}});
  const auto bytes = std::as_bytes(std::span(data, size));
  node.receive(child, bytes);
  if (size < kPacketHeaderBytes) return 0;
  // The checksum would stop almost every input, so the same fields are also written as a valid packet.
  std::vector<std::byte> packet(bytes.begin(), bytes.end());
  PacketHeader header = {.kind = PacketKind::kContribution,
                         .dtype = data[0],
                         .op = data[1],
                         .empty = (data[2] & 1) != 0,
                         .child = static_cast<std::uint16_t>(data[3] % 3),
                         .group = 1,
                         .elements = static_cast<std::uint32_t>(data[4] | data[5] << 8),
                         .slot = data[6]};
  write_packet(header, size - kPacketHeaderBytes, packet);
  node.receive(child, packet);
  return 0;
}
