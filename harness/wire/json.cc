#include "harness/wire/json.h"

#include "harness/wire/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace plugfest::wire {

std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'; }
std::string json_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string json_string(std::string_view text) { return json_line(Json(text)); }

namespace {

// The parser needs no stack for nested values, but this function does.
constexpr int kMaxDepth = 100;

Json filtered(const Json& json, const std::function<std::string(std::string_view)>& filter, int depth) {
  if (depth == kMaxDepth) throw JsonError(std::to_string(kMaxDepth) + " nested lists or objects are too many");
  if (json.is_string()) return filter(json.get_ref<const std::string&>());
  if (!json.is_structured()) return json;
  Json result = json.is_array() ? Json::array() : Json::object();
  for (const auto& [name, member] : json.items())
    (json.is_array() ? result.emplace_back() : result[filter(name)]) = filtered(member, filter, depth + 1);
  return result;
}

}  // namespace

std::shared_ptr<const Json> parse_json(std::string_view text,
                                       const std::function<std::string(std::string_view)>& filter) {
  try {
    Json json = Json::parse(text);
    return std::make_shared<Json>(filter ? filtered(json, filter, 0) : std::move(json));
  } catch (const Json::exception& error) {
    // Removes the library's error number: "[json.exception.parse_error.101] ".
    const std::string_view what = error.what();
    throw JsonError(std::string(what.substr(what.starts_with('[') ? what.find(' ') + 1 : 0)));
  }
}

std::shared_ptr<Json> new_json() { return std::make_shared<Json>(); }

std::string_view take_name(std::string_view& names) {
  std::size_t end = 0;
  for (int depth = 0; end < names.size() && (depth > 0 || names[end] != ','); ++end) {
    const char c = names[end];
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
  }
  std::string_view name = names.substr(0, end);
  names.remove_prefix(std::min(end + 1, names.size()));
  name = name.substr(0, name.find_last_not_of(") ") + 1);
  return name.substr(name.find_last_of("(, ") + 1);
}

void set(Json& json, bool value) { json = value; }
void set(Json& json, double value) { json = value; }
void set(Json& json, std::int64_t value) { json = value; }
void set(Json& json, std::uint64_t value) { json = value; }
void set(Json& json, std::string_view text) { json = text; }
void set_null(Json& json) { json = nullptr; }
void set_list(Json& json) { json = Json::array(); }
void set_object(Json& json) { json = Json::object(); }
Json& add_item(Json& list) { return list.emplace_back(); }
Json& add_entry(Json& object, std::string_view name) { return object[std::string(name)]; }

Json& add_member(Json& object, std::string_view key) {
  const std::size_t dot = key.find('.');
  Json& member = add_entry(object, key.substr(0, dot));
  return dot == key.npos ? member : add_member(member, key.substr(dot + 1));
}

namespace {

// The schema of the object that contains the member `key`. Removes from `key` all but the member's own name.
Json& schema_around(Json& schema, std::string_view& key) {
  const std::size_t dot = key.find('.');
  if (dot == key.npos) return schema;
  Json& outer = add_property(schema, key.substr(0, dot));
  outer["type"] = "object";
  key.remove_prefix(dot + 1);
  return schema_around(outer, key);
}

}  // namespace

Json& add_property(Json& schema, std::string_view key) {
  Json& object = schema_around(schema, key);
  return object["properties"][std::string(key)];
}

void require_member(Json& schema, std::string_view key) {
  if (const std::size_t dot = key.rfind('.'); dot != key.npos) require_member(schema, key.substr(0, dot));
  Json& required = schema_around(schema, key)["required"];
  if (std::find(required.begin(), required.end(), key) == required.end()) required.push_back(std::string(key));
}

bool JsonCursor::boolean() const {
  if (!json_.is_boolean()) refuse("neither true nor false");
  return json_.get<bool>();
}

double JsonCursor::number() const {
  if (!json_.is_number()) refuse("not a number");
  return json_.get<double>();
}

double JsonCursor::figure() const {
  const double value = number();
  if (!(value >= 0) || !std::isfinite(value)) refuse(fmt::format("{}: not a figure", json_.dump()));
  return value;
}

std::int64_t JsonCursor::integer(std::int64_t min, std::int64_t max) const {
  if (!json_.is_number_integer()) refuse("not a whole number");
  const auto value = json_.get<std::int64_t>();
  if ((json_.is_number_unsigned() && value < 0) || value < min || value > max) refuse("out of range");
  return value;
}

std::uint64_t JsonCursor::whole(std::uint64_t max) const {
  if (!json_.is_number_integer()) refuse("not a whole number");
  if (!json_.is_number_unsigned() || json_.get<std::uint64_t>() > max) refuse("out of range");
  return json_.get<std::uint64_t>();
}

const std::string& JsonCursor::text() const {
  if (!json_.is_string()) refuse("not a text");
  return json_.get_ref<const std::string&>();
}

std::size_t JsonCursor::choice(std::span<const std::string_view> texts) const {
  const auto found = std::find(texts.begin(), texts.end(), text());
  if (found == texts.end()) refuse(fmt::format("{} is none of {}", json_line(json_), fmt::join(texts, ", ")));
  return static_cast<std::size_t>(found - texts.begin());
}

bool JsonCursor::is_null() const { return json_.is_null(); }
bool JsonCursor::has(const std::string& name) const { return json_.is_object() && json_.contains(name); }

void JsonCursor::each_item(const std::function<void(const JsonCursor&)>& visit) const {
  if (!json_.is_array()) refuse("not a list");
  for (std::size_t i = 0; i < json_.size(); ++i) visit(JsonCursor(json_[i], this, {}, i));
}

void JsonCursor::each_member(const std::function<void(const std::string&, const JsonCursor&)>& visit) const {
  if (!json_.is_object()) refuse("not an object");
  for (const auto& [name, value] : json_.items()) visit(name, JsonCursor(value, this, name, 0));
}

void JsonCursor::member(std::string_view key, bool may_be_absent,
                        const std::function<void(const JsonCursor&)>& visit) const {
  if (!json_.is_object()) refuse("not an object");
  const std::string_view name = key.substr(0, key.find('.'));
  const auto found = json_.find(std::string(name));
  if (found == json_.end()) {
    if (may_be_absent) return;
    throw JsonError(fmt::format("{}{} is missing", outer_ == nullptr ? "" : place() + '.', name));
  }
  const JsonCursor member(*found, this, name, 0);
  name.size() == key.size() ? visit(member) : member.member(key.substr(name.size() + 1), may_be_absent, visit);
}

void JsonCursor::refuse(std::string_view reason) const {
  throw JsonError(outer_ == nullptr ? std::string(reason) : fmt::format("{}: {}", place(), reason));
}

std::string JsonCursor::place() const {
  const std::string before = outer_->outer_ == nullptr ? "" : outer_->place();
  if (key_.empty()) return fmt::format("{}[{}]", before, index_);
  // The key comes from the file: control characters are removed.
  std::string key(key_);
  std::replace_if(
      key.begin(), key.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return before.empty() ? key : before + '.' + key;
}

}  // namespace plugfest::wire
