// The formats of a message in a slot: SIMPLE is the payload; LL and LL128 are lines with a flag each, which the
// receiving GPU polls. Source: NCCL 2.28.9, src/include/device.h (ncclLLFifoLine), src/device/prims_ll.h,
// prims_ll128.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/wire/replay.h"

namespace plugfest::rank {

/// Bytes on the wire of a message with `payload` bytes.
std::size_t wire_size(ProxyProtocol protocol, std::size_t payload);

/// Writes lines (not SIMPLE) with the flag of the message at `step`.
void write_lines(ProxyProtocol protocol, std::byte* slot, const std::byte* payload, std::size_t size,
                 std::uint64_t step);

/// Whether all lines have the flag of the message at `step`.
bool lines_arrived(ProxyProtocol protocol, const std::byte* slot, std::size_t size, std::uint64_t step);

/// Reads the payload of lines.
void read_lines(ProxyProtocol protocol, const std::byte* slot, std::byte* payload, std::size_t size);

}  // namespace plugfest::rank
