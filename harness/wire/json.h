// The fields of structs (fields.h) as JSON, and JSON as text.
//
//   std::string text = encode_json(pattern);           {"address":1,"size":2,"seed":3}
//   Pattern copy = decode_json<Pattern>(text);
//
// Enumerators are texts if a function `texts_of(Enumeration)` of their namespace returns the texts by value; otherwise
// numbers. A char is a text. Maps, and lists of pairs whose first member is a text, are objects; other pairs are lists
// of two. An optional member without a value is absent. This header includes nothing of nlohmann's library, which is
// slow to compile.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "harness/wire/fields.h"

namespace plugfest::wire {

using Json = nlohmann::ordered_json;

/// Text that is not JSON, or not of the expected form: "runs[0].rules[3].seconds: not a number".
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Indented UTF-8 with a final line feed. Invalid UTF-8 is replaced by U+FFFD.
std::string json_text(const Json& json);
/// UTF-8 without line feeds. Invalid UTF-8 is replaced by U+FFFD.
std::string json_line(const Json& json);
/// `text` as a JSON string in quotes, as json_line().
std::string json_string(std::string_view text);
/// `filter`: replaces each text, also names of members. Errors: JsonError.
std::shared_ptr<const Json> parse_json(std::string_view text,
                                       const std::function<std::string(std::string_view)>& filter = {});

template <typename T>
concept Described = std::is_class_v<T> && requires(const T& value, Writer& writer) {
  value.visit(writer);
};
template <typename T>
concept NamedEnum = std::is_enum_v<T> && requires(T value) {
  texts_of(value);
};
template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
/// A list of pairs of a text and a value is an object.
template <typename T>
inline constexpr bool is_member = false;
template <typename T>
inline constexpr bool is_member<std::pair<std::string, T>> = true;
template <typename T>
inline constexpr bool is_member<std::pair<const std::string, T>> = true;

/// Removes the first name from `names`, the text of the arguments of PLUGFEST_FIELDS. For "figure(seconds)" the name is
/// "seconds".
std::string_view take_name(std::string_view& names);

// JsonWriter and write_json() build a value with these functions.
void set(Json& json, bool value);
void set(Json& json, double value);
void set(Json& json, std::int64_t value);
void set(Json& json, std::uint64_t value);
void set(Json& json, std::string_view text);
void set_null(Json& json);
void set_list(Json& json);
void set_object(Json& json);
Json& add_item(Json& list);
/// `key`: see Field::key.
Json& add_member(Json& object, std::string_view key);
/// `name`: any text.
Json& add_entry(Json& object, std::string_view name);

template <typename T>
void write_json(Json& json, const T& value);

class JsonWriter {
 public:
  explicit JsonWriter(Json& object) : object_(object) { set_object(object); }

  template <typename... T>
  void fields(std::string_view names, const T&... values) {
    (add(take_name(names), values), ...);
  }

 private:
  template <typename T>
  void add(std::string_view name, const T& value) {
    add(name, Field<const T>{value});
  }
  template <typename T>
  void add(std::string_view name, const Field<T>& field) {
    if (!field.written) return;
    if constexpr (is_optional<std::remove_const_t<T>>) {
      if (!field.value) return;
    }
    write_json(add_member(object_, field.key.empty() ? name : field.key), field.value);
  }
  template <typename Function>
  void add(std::string_view, const Computed<Function>& computed) {
    write_json(add_member(object_, computed.key), computed.function());
  }

  Json& object_;
};

template <typename T>
void write_json(Json& json, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    set(json, value);
  } else if constexpr (std::is_same_v<T, char>) {
    set(json, std::string_view(&value, 1));
  } else if constexpr (std::is_floating_point_v<T>) {
    set(json, static_cast<double>(value));
  } else if constexpr (std::is_integral_v<T>) {
    set(json, static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(value));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    set(json, std::string_view(value));
  } else if constexpr (NamedEnum<T>) {
    set(json, std::string_view(texts_of(value)[static_cast<std::size_t>(value)]));
  } else if constexpr (std::is_enum_v<T>) {
    write_json(json, static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (is_optional<T>) {
    value ? write_json(json, *value) : set_null(json);
  } else if constexpr (Described<T>) {
    JsonWriter writer(json);
    value.visit(writer);
  } else if constexpr (requires { value.second; }) {
    set_list(json);
    write_json(add_item(json), value.first);
    write_json(add_item(json), value.second);
  } else if constexpr (is_member<typename T::value_type>) {
    set_object(json);
    for (const auto& [name, item] : value) write_json(add_entry(json, name), item);
  } else {
    set_list(json);
    for (const auto& item : value) write_json(add_item(json), item);
  }
}

/// A value in a document that is read, and its location.
class JsonCursor {
 public:
  explicit JsonCursor(const Json& json) : JsonCursor(json, nullptr, {}, 0) {}

  bool boolean() const;
  double number() const;
  /// Errors of these three functions: JsonError, including if the number is out of range, or for the last one negative
  /// or not finite.
  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  std::uint64_t whole(std::uint64_t max) const;
  double figure() const;
  const std::string& text() const;
  /// The index of the text in `texts`.
  std::size_t choice(std::span<const std::string_view> texts) const;
  bool is_null() const;
  /// Whether this is an object with such a member.
  bool has(const std::string& name) const;
  /// Calls `visit` for each item of a list.
  void each_item(const std::function<void(const JsonCursor&)>& visit) const;
  /// Calls `visit` for each member of an object.
  void each_member(const std::function<void(const std::string&, const JsonCursor&)>& visit) const;
  /// Calls `visit` with the member. `key`: see Field::key. Errors: JsonError if it is absent and must not be.
  void member(std::string_view key, bool may_be_absent, const std::function<void(const JsonCursor&)>& visit) const;
  [[noreturn]] void refuse(std::string_view reason) const;

 private:
  JsonCursor(const Json& json, const JsonCursor* outer, std::string_view key, std::size_t index)
      : json_(json), outer_(outer), key_(key), index_(index) {}
  /// The location: "runs[0].seconds".
  std::string place() const;

  const Json& json_;
  /// Null: this is the document.
  const JsonCursor* outer_;
  /// Empty: an item of a list.
  std::string_view key_;
  std::size_t index_;
};

/// `figures`: numbers in `value` must be finite and not negative.
template <typename T>
void read_json(const JsonCursor& json, T& value, bool figures = false);

class JsonReader {
 public:
  explicit JsonReader(const JsonCursor& object) : object_(object) {}

  template <typename... T>
  void fields(std::string_view names, T&&... values) {
    (get(take_name(names), values), ...);
  }

 private:
  template <typename T>
  void get(std::string_view name, T& value) {
    Field<T> field{value};
    get(name, field);
  }
  template <typename T>
  void get(std::string_view name, Field<T>& field) {
    if (!field.read) return;
    object_.member(field.key.empty() ? name : field.key, field.may_be_absent || is_optional<T>,
                   [&](const JsonCursor& member) { read_json(member, field.value, field.is_figure); });
  }
  template <typename Function>
  void get(std::string_view, Computed<Function>&) {}

  const JsonCursor& object_;
};

template <typename T>
void read_json(const JsonCursor& json, T& value, bool figures) {
  if constexpr (std::is_same_v<T, bool>) {
    value = json.boolean();
  } else if constexpr (std::is_same_v<T, char>) {
    if (!json.text().empty()) value = json.text().front();
  } else if constexpr (std::is_floating_point_v<T>) {
    value = static_cast<T>(figures ? json.figure() : json.number());
  } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    value = static_cast<T>(json.integer(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::is_integral_v<T>) {
    value = static_cast<T>(json.whole(std::numeric_limits<T>::max()));
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = json.text();
  } else if constexpr (NamedEnum<T>) {
    value = static_cast<T>(json.choice(texts_of(value)));
  } else if constexpr (std::is_enum_v<T>) {
    std::underlying_type_t<T> number{};
    read_json(json, number);
    value = static_cast<T>(number);
  } else if constexpr (is_optional<T>) {
    value.reset();
    if (!json.is_null()) read_json(json, value.emplace(), figures);
  } else if constexpr (Described<T>) {
    JsonReader reader(json);
    value.visit(reader);
  } else if constexpr (requires { value.second; }) {
    std::size_t count = 0;
    json.each_item([&](const JsonCursor& item) {
      if (count == 0) read_json(item, value.first, figures);
      if (count == 1) read_json(item, value.second, figures);
      ++count;
    });
    if (count != 2) json.refuse("not a list of two");
  } else if constexpr (is_member<typename T::value_type>) {
    value.clear();
    json.each_member([&](const std::string& name, const JsonCursor& member) {
      std::pair<std::string, typename T::value_type::second_type> entry(name, {});
      read_json(member, entry.second, figures);
      value.insert(value.end(), std::move(entry));
    });
  } else {
    value.clear();
    json.each_item([&](const JsonCursor& item) { read_json(item, value.emplace_back(), figures); });
  }
}

/// A new JSON value, for write_json().
std::shared_ptr<Json> new_json();

/// The fields of `value`, as json_text().
template <Described T>
std::string json_text(const T& value) {
  const std::shared_ptr<Json> json = new_json();
  write_json(*json, value);
  return json_text(*json);
}

template <typename T>
std::string encode_json(const T& value) {
  const std::shared_ptr<Json> json = new_json();
  write_json(*json, value);
  return json_line(*json);
}

/// Errors: JsonError when `text` is not exactly one `T`. Unknown members are ignored.
template <typename T>
T decode_json(std::string_view text) {
  T value;
  read_json(JsonCursor(*parse_json(text)), value);
  return value;
}

}  // namespace plugfest::wire
