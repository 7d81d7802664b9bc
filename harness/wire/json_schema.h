// The JSON Schema of documents that write_json() writes (json.h).
//
//   std::string text = json_text(*schema_of<Pattern>());     {"type": "object", "properties": {"address": …}, …}
//
// Source: JSON Schema, draft 2020-12. Objects may have more members than the schema, because readers ignore them.
#pragma once

#include "harness/wire/json.h"

namespace plugfest::wire {

/// Marks `key`, of the form of Field::key, as a required member of the object that `schema` describes.
void require_member(Json& schema, std::string_view key);
/// Returns the schema of a member of the object that `schema` describes. `key`: see Field::key.
Json& add_property(Json& schema, std::string_view key);

template <typename T>
void write_schema(Json& schema, bool figures = false);

/// Describes the fields of an object; an archive as JsonWriter.
class SchemaWriter {
 public:
  explicit SchemaWriter(Json& schema) : schema_(schema) { set(add_entry(schema, "type"), std::string_view("object")); }

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
    using Value = std::remove_const_t<T>;
    const std::string_view key = field.key.empty() ? name : field.key;
    write_schema<Value>(add_property(schema_, key), field.is_figure);
    if (!field.may_be_absent && !is_optional<Value>) require_member(schema_, key);
  }
  template <typename Function>
  void add(std::string_view, const Computed<Function>& computed) {
    write_schema<std::remove_cvref_t<decltype(computed.function())>>(add_property(schema_, computed.key));
  }

  Json& schema_;
};

/// `figures`: see read_json().
template <typename T>
void write_schema(Json& schema, bool figures) {
  const auto set_type = [&](std::string_view type) { set(add_entry(schema, "type"), type); };
  if constexpr (std::is_same_v<T, bool>) {
    set_type("boolean");
  } else if constexpr (std::is_floating_point_v<T>) {
    set_type("number");
    if (figures) set(add_entry(schema, "minimum"), std::int64_t{0});
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, char>) {
    set_type("integer");
    if constexpr (std::is_unsigned_v<T>) set(add_entry(schema, "minimum"), std::int64_t{0});
  } else if constexpr (std::is_same_v<T, char> || std::is_convertible_v<const T&, std::string_view>) {
    set_type("string");
  } else if constexpr (NamedEnum<T>) {
    write_json(add_entry(schema, "enum"), texts_of(T{}));
  } else if constexpr (std::is_enum_v<T>) {
    set_type("integer");
  } else if constexpr (is_optional<T>) {
    write_schema<typename T::value_type>(schema, figures);
  } else if constexpr (Described<T>) {
    SchemaWriter writer(schema);
    const T value = {};
    value.visit(writer);
  } else if constexpr (requires(const T& value) { value.second; }) {
    set_type("array");
    Json& items = add_entry(schema, "prefixItems");
    write_schema<typename T::first_type>(add_item(items), figures);
    write_schema<typename T::second_type>(add_item(items), figures);
    for (const char* const bound : {"minItems", "maxItems"}) set(add_entry(schema, bound), std::int64_t{2});
  } else if constexpr (is_member<typename T::value_type>) {
    set_type("object");
    write_schema<typename T::value_type::second_type>(add_entry(schema, "additionalProperties"), figures);
  } else {
    set_type("array");
    write_schema<typename T::value_type>(add_entry(schema, "items"), figures);
  }
}

}  // namespace plugfest::wire
