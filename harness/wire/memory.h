// Requests about the memory of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/wire/fields.h"

namespace plugfest::rank {

struct Range {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  PLUGFEST_FIELDS(address, size)
};
struct Pattern {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t seed = 0;
  PLUGFEST_FIELDS(address, size, seed)
};
struct ByteValue {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint8_t value = 0;
  PLUGFEST_FIELDS(address, size, value)
};

struct Map {
  std::uint64_t size = 0;
  /// The last byte lies before the guard page; else the first byte lies after one.
  bool at_end = true;
  PLUGFEST_FIELDS(size, at_end)
};
struct Mapping {
  /// The memory that was asked for, and the whole pages between the guard pages.
  std::uint64_t address = 0;
  std::uint64_t pages_address = 0;
  std::uint64_t pages_size = 0;
  PLUGFEST_FIELDS(address, pages_address, pages_size)
};
/// These four take the pages of a Mapping.
struct Unmap : Range {};
struct MapAgain : Range {};
struct Free : Range {};
struct Protect {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  /// PROT_* bits.
  std::int32_t access = 0;
  PLUGFEST_FIELDS(address, size, access)
};
struct Fill : Pattern {};
struct Check : Pattern {};
struct Set : ByteValue {};
struct CheckSet : ByteValue {};
struct Difference {
  /// Number of bytes that differ. The other members describe the first of them.
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint8_t got = 0;
  std::uint8_t expected = 0;
  PLUGFEST_FIELDS(bytes, offset, got, expected)
};
struct Read : Range {};
struct Bytes {
  std::vector<std::byte> bytes;
  PLUGFEST_FIELDS(bytes)
};
struct Write {
  std::uint64_t address = 0;
  std::vector<std::byte> bytes;
  PLUGFEST_FIELDS(address, bytes)
};

}  // namespace plugfest::rank
