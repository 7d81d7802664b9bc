// Encoding of little-endian numbers, and decoding with a check of every length.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace mesh {

/// Appends numbers and bytes to a buffer.
class ByteWriter {
 public:
  template <std::unsigned_integral T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof value; ++i) bytes_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void bytes(std::span<const std::uint8_t> source) { bytes_.insert(bytes_.end(), source.begin(), source.end()); }
  std::size_t size() const { return bytes_.size(); }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// A message: magic, version, type, length of the body (16 bits), body.
inline std::vector<std::uint8_t> framed(std::uint32_t magic, std::uint8_t version, std::uint8_t type, ByteWriter body) {
  ByteWriter whole;
  whole.number(magic);
  whole.number(version);
  whole.number(type);
  whole.number(static_cast<std::uint16_t>(body.size()));
  whole.bytes(body.take());
  return whole.take();
}

/// Reads numbers and bytes from a range. Reads beyond its end return zeroes and make `ok` false permanently, so one
/// check after the last read is enough.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::uint8_t> source) : rest_(source) {}

  template <std::unsigned_integral T>
  T number() {
    std::uint8_t raw[sizeof(T)] = {};
    bytes(raw);
    T value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) value = static_cast<T>(value | static_cast<T>(T{raw[i]} << (8 * i)));
    return value;
  }
  void bytes(std::span<std::uint8_t> target) {
    if (target.size() > rest_.size()) {
      ok_ = false;
      rest_ = {};
      std::memset(target.data(), 0, target.size());
      return;
    }
    std::memcpy(target.data(), rest_.data(), target.size());
    rest_ = rest_.subspan(target.size());
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  std::span<const std::uint8_t> rest_;
  bool ok_ = true;
};

}  // namespace mesh
