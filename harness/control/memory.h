// Memory of a rank, between guard pages. Contents never travel: patterns are written and checked in the rank.
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

/// Where memory lies between its two PROT_NONE pages.
///  kEnd: its last byte is the last one before the guard page, so a write past it crashes at once.
///  kStart: its first byte follows a guard page; page-aligned.
enum class Placement : std::uint8_t { kEnd, kStart };

/// How a comparison went.
struct Check {
  bool same = true;
  /// In words: "byte 17 is 0x5a, expected 0x31 (983 of 1000 bytes differ)"; "" when same.
  std::string difference;
  explicit operator bool() const { return same; }
};

/// A mapping in a rank; shared by its copies, given back when the rank is released (see session.h) or by `free`.
/// All calls run on the rank's thread `memory`, which no plugin call uses: they work while another thread hangs.
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
  /// Undoes `forbid`.
  void allow();
  /// munmap of all but the guard pages.
  void unmap();
  /// Maps fresh zero pages at the address that `unmap` left.
  void map_again();
  /// Unmaps all, guard pages too.
  void free();

 private:
  std::shared_ptr<RankProcess> rank_;
  Slice whole_;
  /// Whole pages, without the guard pages.
  Slice mapping_;
};

}  // namespace plugfest::control
