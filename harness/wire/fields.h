// One description of the fields of a struct, for the binary messages of this file and for JSON (json.h).
//
//   struct Pattern {
//     std::uint64_t address = 0, size = 0, seed = 0;
//     PLUGFEST_FIELDS(address, size, seed)
//   };
//   std::vector<std::byte> bytes = encode(pattern);
//   Pattern copy = decode<Pattern>(bytes);
//
// Binary: little-endian numbers; texts and lists after their length. Decoding checks every length and throws WireError.
// For JSON, namespace `field` adds properties to a field:
//
//   PLUGFEST_FIELDS(id, key("host", name), figure(seconds), unless_empty(message))
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace plugfest::wire {

/// The fields of a struct, in the order in which they are encoded.
#define PLUGFEST_FIELDS(...)                                 \
  template <typename Archive>                                \
  void visit(Archive& archive) {                             \
    using namespace ::plugfest::wire::field;                 \
    archive.fields(#__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }                                                          \
  template <typename Archive>                                \
  void visit(Archive& archive) const {                       \
    using namespace ::plugfest::wire::field;                 \
    archive.fields(#__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }

/// The fields of a struct that follow its base class's fields.
#define PLUGFEST_FIELDS_AFTER(Base, ...)       \
  template <typename Archive>                  \
  void visit(Archive& archive) {               \
    using namespace ::plugfest::wire::field;   \
    Base::visit(archive);                      \
    archive.fields(#__VA_ARGS__, __VA_ARGS__); \
  }                                            \
  template <typename Archive>                  \
  void visit(Archive& archive) const {         \
    using namespace ::plugfest::wire::field;   \
    Base::visit(archive);                      \
    archive.fields(#__VA_ARGS__, __VA_ARGS__); \
  }

/// A member and its properties in JSON. Binary messages contain only the value.
template <typename T>
struct Field {
  T& value;
  /// "a.b" is member b of the object a. Empty: the name of the member.
  std::string_view key = {};
  bool written = true;
  bool read = true;
  /// If the key is absent, the reader leaves the member unchanged.
  bool may_be_absent = false;
  /// The reader refuses numbers that are negative or not finite.
  bool is_figure = false;
};
/// A member of JSON objects that readers ignore.
template <typename Function>
struct Computed {
  std::string_view key;
  Function function;
};

/// Properties that PLUGFEST_FIELDS may add to a member. They can be nested: key("rate", figure(bits_per_second)).
namespace field {

template <typename T>
Field<T> of(T& value) {
  return {value};
}
template <typename T>
Field<T> of(Field<T> field) {
  return field;
}
template <typename Member>
auto key(std::string_view name, Member&& member) {
  auto field = of(member);
  field.key = name;
  return field;
}
/// Written if `condition` holds; may be absent.
template <typename Member>
auto when(bool condition, Member&& member) {
  auto field = of(member);
  field.written = condition;
  field.may_be_absent = true;
  return field;
}
template <typename Member>
auto unless_empty(Member&& member) {
  const bool is_empty = of(member).value.empty();
  return when(!is_empty, member);
}
/// Always written; may be absent.
template <typename Member>
auto or_default(Member&& member) {
  return when(true, member);
}
template <typename Member>
auto only_written(Member&& member) {
  auto field = of(member);
  field.read = false;
  return field;
}
/// A time or another measured number.
template <typename Member>
auto figure(Member&& member) {
  auto field = of(member);
  field.is_figure = true;
  return field;
}
template <typename Function>
Computed<Function> computed(std::string_view key, Function function) {
  return {key, function};
}

}  // namespace field

/// Bytes that are not a message of the expected form.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  void operator()(const T& message) {
    put(message);
  }
  template <typename... T>
  void fields(const char*, const T&... values) {
    (put(values), ...);
  }

 private:
  void append(const void* bytes, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(bytes);
    out_.insert(out_.end(), first, first + size);
  }
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
      append(&value, sizeof value);
    else
      value.visit(*this);
  }
  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    append(text.data(), text.size());
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    put(static_cast<std::uint32_t>(list.size()));
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
      append(list.data(), list.size() * sizeof(T));
    else
      for (const T& item : list) put(item);
  }
  template <typename Key, typename T>
  void put(const std::map<Key, T>& map) {
    put(static_cast<std::uint32_t>(map.size()));
    for (const auto& entry : map) put(entry);
  }
  template <typename First, typename Second>
  void put(const std::pair<First, Second>& pair) {
    put(pair.first);
    put(pair.second);
  }
  template <typename T, std::size_t N>
  void put(const std::array<T, N>& items) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(items.data(), sizeof(T) * N);
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename T>
  void put(const Field<T>& field) {
    put(field.value);
  }
  template <typename Function>
  void put(const Computed<Function>&) {}

  std::vector<std::byte>& out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <typename T>
  void operator()(T& message) {
    get(message);
  }
  template <typename... T>
  void fields(const char*, T&&... values) {
    (get(values), ...);
  }
  std::size_t left() const { return in_.size(); }

 private:
  void take(void* bytes, std::size_t size) {
    if (size > in_.size()) throw WireError("a message is shorter than expected");
    if (size != 0) std::memcpy(bytes, in_.data(), size);
    in_ = in_.subspan(size);
  }
  /// Reads the number of items that follow. `item_size`: the minimum size of an item in bytes.
  std::size_t take_count(std::size_t item_size) {
    std::uint32_t count = 0;
    get(count);
    if (count > in_.size() / item_size) throw WireError("a list is longer than its message");
    return count;
  }
  template <typename T>
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
  template <typename T>
  void get(std::vector<T>& list) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      list.resize(take_count(sizeof(T)));
      take(list.data(), list.size() * sizeof(T));
    } else {
      list.clear();
      for (std::size_t left = take_count(1); left > 0; --left) get(list.emplace_back());
    }
  }
  template <typename Key, typename T>
  void get(std::map<Key, T>& map) {
    map.clear();
    for (std::size_t left = take_count(1); left > 0; --left) {
      std::pair<Key, T> entry;
      get(entry);
      map.insert(std::move(entry));
    }
  }
  template <typename First, typename Second>
  void get(std::pair<First, Second>& pair) {
    get(pair.first);
    get(pair.second);
  }
  template <typename T, std::size_t N>
  void get(std::array<T, N>& items) {
    static_assert(std::is_trivially_copyable_v<T>);
    take(items.data(), sizeof(T) * N);
  }
  template <typename T>
  void get(std::optional<T>& value) {
    bool has_value = false;
    get(has_value);
    value.reset();
    if (has_value) get(value.emplace());
  }
  template <typename T>
  void get(Field<T>& field) {
    get(field.value);
  }
  template <typename Function>
  void get(Computed<Function>&) {}

  std::span<const std::byte> in_;
};

template <typename T>
std::vector<std::byte> encode(const T& message) {
  std::vector<std::byte> bytes;
  Writer{bytes}(message);
  return bytes;
}

/// Errors: WireError when the bytes are not exactly one `T`.
template <typename T>
T decode(std::span<const std::byte> bytes) {
  T message;
  Reader reader{bytes};
  reader(message);
  if (reader.left() != 0) throw WireError("a message is longer than expected");
  return message;
}

}  // namespace plugfest::wire
