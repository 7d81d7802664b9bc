// Encoding of messages between controller and rank: little-endian numbers; texts and lists after their length.
//
// A message is a struct that lists its fields once:
//
//   struct Pattern {
//     std::uint64_t address = 0, size = 0, seed = 0;
//     PLUGFEST_FIELDS(address, size, seed)
//   };
//   std::vector<std::byte> bytes = encode(pattern);
//   Pattern copy = decode<Pattern>(bytes);
//
// Decoding checks every length and throws WireError.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace plugfest::rank {

/// The fields of a message, in the order in which they are encoded.
#define PLUGFEST_FIELDS(...)           \
  template <class Archive>             \
  void visit(Archive& archive) {       \
    archive(__VA_ARGS__);              \
  }                                    \
  template <class Archive>             \
  void visit(Archive& archive) const { \
    archive(__VA_ARGS__);              \
  }

/// The fields of a message that follow those of its base class.
#define PLUGFEST_FIELDS_AFTER(Base, ...) \
  template <class Archive>               \
  void visit(Archive& archive) {         \
    Base::visit(archive);                \
    archive(__VA_ARGS__);                \
  }                                      \
  template <class Archive>               \
  void visit(Archive& archive) const {   \
    Base::visit(archive);                \
    archive(__VA_ARGS__);                \
  }

/// Bytes that are not a message of the expected form.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

 private:
  void append(const void* bytes, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(bytes);
    out_.insert(out_.end(), first, first + size);
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      append(&value, sizeof value);
    } else {
      value.visit(*this);
    }
  }
  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    append(text.data(), text.size());
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(static_cast<std::uint32_t>(list.size()));
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      append(list.data(), list.size() * sizeof(T));
    } else {
      for (const T& item : list) put(item);
    }
  }
  void put(const std::vector<std::byte>& bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    append(bytes.data(), bytes.size());
  }
  template <class T, std::size_t N>
  void put(const std::array<T, N>& items) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(items.data(), sizeof(T) * N);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }

  std::vector<std::byte>& out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  std::size_t left() const { return in_.size(); }

 private:
  void take(void* bytes, std::size_t size) {
    if (size > in_.size()) throw WireError("a message is shorter than expected");
    if (size != 0) std::memcpy(bytes, in_.data(), size);
    in_ = in_.subspan(size);
  }
  /// Reads the number of items that follow. `item_size`: the least number of bytes of an item.
  std::size_t take_count(std::size_t item_size) {
    std::uint32_t count = 0;
    get(count);
    if (count > in_.size() / item_size) throw WireError("a list is longer than its message");
    return count;
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      take(&byte, 1);
      value = byte != 0;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      take(&value, sizeof value);
    } else {
      value.visit(*this);
    }
  }
  void get(std::string& text) {
    text.resize(take_count(1));
    take(text.data(), text.size());
  }
  template <class T>
  void get(std::vector<T>& list) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::byte>) {
      list.resize(take_count(sizeof(T)));
      take(list.data(), list.size() * sizeof(T));
    } else {
      list.clear();
      for (std::size_t left = take_count(1); left > 0; --left) get(list.emplace_back());
    }
  }
  template <class T, std::size_t N>
  void get(std::array<T, N>& items) {
    static_assert(std::is_trivially_copyable_v<T>);
    take(items.data(), sizeof(T) * N);
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool has_value = false;
    get(has_value);
    value.reset();
    if (has_value) get(value.emplace());
  }

  std::span<const std::byte> in_;
};

template <class T>
std::vector<std::byte> encode(const T& message) {
  std::vector<std::byte> bytes;
  Writer{bytes}(message);
  return bytes;
}

/// Errors: WireError when the bytes are not exactly one `T`.
template <class T>
T decode(std::span<const std::byte> bytes) {
  T message;
  Reader reader{bytes};
  reader(message);
  if (reader.left() != 0) throw WireError("a message is longer than expected");
  return message;
}

}  // namespace plugfest::rank
