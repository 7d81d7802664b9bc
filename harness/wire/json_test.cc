#include "harness/wire/json.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

namespace plugfest::wire {
namespace {

enum class Color : std::uint8_t { kRed, kGreen };
constexpr std::array<std::string_view, 2> kColors = {"red", "green"};
std::span<const std::string_view> texts_of(Color) { return kColors; }

struct Point {
  std::int32_t x = 0;
  std::uint8_t y = 7;
  PLUGFEST_FIELDS(x, or_default(y))
};
struct Named : Point {
  std::string name;
  PLUGFEST_FIELDS_AFTER(Point, name)
};
struct All {
  std::string title = {};
  Color color = Color::kRed;
  char level = 'M';
  bool good = false;
  double seconds = 0;
  std::optional<double> start = {};
  std::vector<Named> points = {};
  std::vector<std::pair<std::uint64_t, double>> curve = {};
  std::vector<std::pair<std::string, std::optional<int>>> changes = {};
  std::map<std::string, std::uint64_t> counts = {};
  std::string path = {};
  std::string plugin_name = {};
  bool with_notes = false;
  std::vector<std::string> notes = {};
  PLUGFEST_FIELDS(key("clause", title), color, level, good, figure(seconds), figure(start), points, figure(curve),
                  changes, counts, unless_empty(path), key("plugin.name", plugin_name),
                  computed("sum", [this] { return points.size() + counts.size(); }), only_written(with_notes),
                  when(with_notes || !notes.empty(), notes))
};

All some() {
  All all{.title = "a \"b\"", .color = Color::kGreen, .good = true, .seconds = 0.5};
  all.points.resize(2);
  all.points[1].x = -3;
  all.points[1].name = "p";
  all.curve = {{8, 1.5}};
  all.changes = {{"Z", std::nullopt}, {"A", 1}};
  all.counts = {{"n", 18446744073709551615u}};
  return all;
}

constexpr const char* kSome =
    R"({"clause":"a \"b\"","color":"green","level":"M","good":true,"seconds":0.5,"points":[{"x":0,"y":7,"name":""},)"
    R"({"x":-3,"y":7,"name":"p"}],"curve":[[8,1.5]],"changes":{"Z":null,"A":1},"counts":{"n":18446744073709551615},)"
    R"("plugin":{"name":""},"sum":3,"with_notes":false})";

TEST(Json, WritesFieldsInTheirOrder) { EXPECT_EQ(encode_json(some()), kSome); }

TEST(Json, OmitsWhatIsEmpty) {
  All all = some();
  all.start = 1;
  all.path = "a";
  all.with_notes = true;
  const std::string text = encode_json(all);
  EXPECT_NE(text.find(R"("start":1.0,"points")"), text.npos) << text;
  EXPECT_NE(text.find(R"("path":"a","plugin")"), text.npos) << text;
  EXPECT_NE(text.find(R"("notes":[])"), text.npos) << text;
}

TEST(Json, ReadsWhatItHasWritten) {
  const All all = decode_json<All>(kSome);
  EXPECT_EQ(encode_json(all), kSome);
  EXPECT_EQ(all.color, Color::kGreen);
  EXPECT_EQ(all.changes.front().first, "Z");
  EXPECT_EQ(encode_json(decode<All>(encode(all))), kSome);
}

// The error for kSome with `before` replaced by `after`.
std::string refusal(const std::string& before, const std::string& after) {
  std::string text = kSome;
  text.replace(text.find(before), before.size(), after);
  try {
    decode_json<All>(text);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Json, NamesThePlaceOfWhatItRefuses) {
  EXPECT_EQ(refusal("\"clause\"", "\"claws\""), "clause is missing");
  EXPECT_EQ(refusal("\"name\":\"p\"", "\"nam\":\"p\""), "points[1].name is missing");
  EXPECT_EQ(refusal("\"name\":\"p\"", "\"name\":[]"), "points[1].name: not a text");
  EXPECT_EQ(refusal("{\"name\":\"\"}", "7"), "plugin: not an object");
  EXPECT_EQ(refusal("\"points\":[", "\"points\":[1,"), "points[0]: not an object");
  EXPECT_EQ(refusal("-3", "0.5"), "points[1].x: not a whole number");
  EXPECT_EQ(refusal("-3", "2147483648"), "points[1].x: out of range");
  EXPECT_EQ(refusal("\"y\":7", "\"y\":-1"), "points[0].y: out of range");
  EXPECT_EQ(refusal("\"y\":7", "\"y\":256"), "points[0].y: out of range");
  EXPECT_EQ(refusal("[8,1.5]", "[8]"), "curve[0]: not a list of two");
  EXPECT_EQ(refusal("1.5", "-1.5"), "curve[0][1]: -1.5: not a figure");
  EXPECT_EQ(refusal("0.5", "\"\""), "seconds: not a number");
  EXPECT_EQ(refusal("green", "gr\\u001been"), "color: \"gr\\u001been\" is none of red, green");
  EXPECT_EQ(refusal("\"A\":1", "\"\\u001b\":true"), "changes.?: not a whole number");
  EXPECT_EQ(refusal("true", "1"), "good: neither true nor false");
  EXPECT_EQ(refusal("}]", "]").substr(0, 29), "parse error at line 1, column");
}

TEST(Json, AcceptsAbsentMembers) {
  EXPECT_EQ(refusal(",\"y\":7", ""), "accepted");
  EXPECT_EQ(refusal("\"seconds\"", "\"start\":null,\"seconds\""), "accepted");
  EXPECT_EQ(refusal("\"seconds\"", "\"start\":-1,\"seconds\""), "start: -1: not a figure");
  EXPECT_EQ(refusal("\"sum\":3,\"with_notes\":false", "\"other\":3"), "accepted");
}

TEST(Json, ReplacesInvalidUtf8) { EXPECT_EQ(json_string("a\xff\x01"), "\"a\xef\xbf\xbd\\u0001\""); }

}  // namespace
}  // namespace plugfest::wire
