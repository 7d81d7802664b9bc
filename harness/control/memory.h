// Memory of a rank, between guard pages. The rank writes and checks its contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace plugfest::control {

class RankProcess;

/// Bytes in a rank's address space.
struct Slice {
  std::uint64_t address = 0;
  std::size_t size = 0;

  /// Errors: std::out_of_range (a mistake in a rule) when it does not fit.
  Slice sub(std::size_t offset, std::size_t length) const;
};

/// A slice and the registration that covers it: what isend and irecv take.
struct Buffer {
  Slice slice;
  /// The plugin's mhandle.
  std::uint64_t mhandle = 0;

  Buffer sub(std::size_t offset, std::size_t length) const { return {slice.sub(offset, length), mhandle}; }
};

/// Position of memory between its two guard pages.
///  kEnd: the last byte lies before a guard page, so that an access past the end crashes.
///  kStart: the first byte lies after a guard page, page-aligned.
enum class Placement : std::uint8_t { kEnd, kStart };

/// Result of a comparison.
struct Check {
  bool same = true;
  /// "byte 17 is 0x5a, expected 0x31 (983 of 1000 bytes differ)"; "" when same.
  std::string difference;
  explicit operator bool() const { return same; }
};

/// A mapping in a rank; copies refer to the same one. `free` unmaps it, else the release of the rank (session.h).
/// All functions run on the rank's thread `memory`, which makes no plugin calls, so that they work while a call hangs.
class Memory {
 public:
  Memory(std::shared_ptr<RankProcess> rank, Slice whole, Slice mapping);

  const Slice& slice() const { return whole_; }
  std::size_t size() const { return whole_.size; }
  std::uint64_t address() const { return whole_.address; }
  Slice sub(std::size_t offset, std::size_t length) const { return whole_.sub(offset, length); }
  operator Slice() const { return whole_; }

  /// Maps the pages PROT_NONE: every access crashes the rank, and the verdict shows the address.
  void forbid();
  /// Maps the pages read-only.
  void make_read_only();
  /// Undoes `forbid` and `make_read_only`.
  void allow();
  /// munmap of all but the guard pages.
  void unmap();
  /// Maps new pages of zeroes at the address of the memory, after `unmap`.
  void map_again();
  /// Unmaps the memory and its guard pages.
  void free();

 private:
  std::shared_ptr<RankProcess> rank_;
  Slice whole_;
  /// Whole pages, without the guard pages.
  Slice mapping_;
};

}  // namespace plugfest::control
