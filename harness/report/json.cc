// Writes and reads results.json, and reads the figures of bench net and coll.
#include "harness/report/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <utility>

#include "fabric/system/file.h"
#include "harness/report/text.h"
#include "harness/report/verdict.h"
#include "harness/wire/json.h"
#include "harness/wire/json_schema.h"

namespace plugfest::report {
namespace {

using wire::JsonCursor;
using wire::JsonReader;

using Counts = std::vector<std::pair<std::string, std::size_t>>;

Counts counts_of(const Summary& summary, bool with_zeroes) {
  Counts counts;
  for (const Verdict verdict : kVerdicts)
    if (with_zeroes || summary.of(verdict) != 0) counts.emplace_back(text(verdict), summary.of(verdict));
  return counts;
}

struct FlakeRecord {
  std::string id;
  int api = 0;
  Counts verdicts;
  PLUGFEST_FIELDS(id, api, verdicts)
};

std::vector<FlakeRecord> flakes_of(const Document& document) {
  std::vector<FlakeRecord> records;
  for (const Flake& flake : find_flakes(document.runs))
    records.push_back({flake.id, flake.api, counts_of(flake.verdicts, false)});
  return records;
}

// The fields of results.json after the schema. `AnyDocument`: a Document, const for writers.
template <typename Archive, typename AnyDocument>
void visit_results(Archive& archive, AnyDocument& document, bool& interrupted) {
  using namespace wire::field;
  archive.fields("", key("tool.version", document.version), key("tool.commit", document.commit),
                 key("environment", document.environment), key("interrupted", interrupted),
                 key("certification", document.certification),
                 key("fabric", when(!document.fabric.nodes.empty(), document.fabric)), key("release", document.release),
                 key("runs", document.runs), computed("flaky", [&] { return flakes_of(document); }),
                 computed("summary", [&] { return counts_of(summarize(document.runs), true); }),
                 key("mutants", only_written(unless_empty(document.mutants))),
                 key("pairs", unless_empty(document.pairs)), key("curves", unless_empty(document.curves)));
}

Document read_results_document(const JsonCursor& json) {
  JsonReader reader(json);
  int schema = 0;
  reader.fields("schema", schema);
  if (schema != kSchema) {
    throw std::runtime_error(
        fmt::format("schema {}: this plugfest reads schema {}; use the plugfest that wrote the file", schema, kSchema));
  }
  Document document;
  bool interrupted = false;
  visit_results(reader, document, interrupted);
  if (interrupted) document.stop_signal = SIGINT;
  return document;
}

// The common measure of rows for all sizes: "bw-64K" and "bw-1M" belong to one curve. Nothing for other rows.
std::optional<std::string> measure_of(const std::string& row) {
  for (const auto& [prefix, measure] :
       {std::pair("bw-", "bandwidth, one comm"), std::pair("lat-", "half a round trip, median")}) {
    if (!row.starts_with(prefix)) continue;
    const std::string size = row.substr(std::string(prefix).size());
    // Rows without a curve: "bw-4x1M", "bw-both-1M", "lat-p99-8".
    if (size.find_first_not_of("0123456789KMG") == std::string::npos) return measure;
  }
  return std::nullopt;
}

// Adds a point to the curve of this subject and measure, and creates the curve if necessary.
void add(std::vector<Curve>& curves, Curve curve, std::uint64_t at, double value) {
  auto found = std::find_if(curves.begin(), curves.end(), [&](const Curve& known) {
    return known.measure == curve.measure && known.subject == curve.subject;
  });
  if (found == curves.end()) found = curves.insert(curves.end(), std::move(curve));
  found->points.emplace_back(at, value);
}

Document read_bench(const JsonCursor& json) {
  using namespace wire::field;
  Document document;
  Environment& environment = document.environment;
  std::vector<Curve>& curves = document.curves;
  std::optional<double> line_rate;
  JsonReader(json).fields("", key("tool.version", document.version), key("tool.commit", document.commit),
                          key("environment.kernel", environment.kernel), key("environment.cpu", environment.cpu),
                          key("environment.privileges", environment.privileges), key("line_rate", figure(line_rate)));
  const auto read_row = [&](const JsonCursor& row) {
    JsonReader reader(row);
    std::string name, subject, unit;
    reader.fields("name", name);
    const std::optional<std::string> measure = measure_of(name);
    if (!measure) return;
    std::uint64_t size = 0;
    double value = 0;
    reader.fields("subject, unit, size, value", subject, unit, size, figure(value));
    const auto kind = subject == "perftest" ? Curve::Kind::kReference : Curve::Kind::kSubject;
    add(curves, {.measure = *measure, .unit = unit, .subject = subject, .kind = kind, .points = {}}, size, value);
    if (!line_rate || unit != "Gbit/s") return;
    const bool known = std::any_of(curves.begin(), curves.end(), [&](const Curve& curve) {
      return curve.kind == Curve::Kind::kLimit && !curve.points.empty() && curve.points.back().first == size;
    });
    Curve limit{.measure = *measure, .unit = unit, .subject = "line rate", .kind = Curve::Kind::kLimit, .points = {}};
    if (!known) add(curves, std::move(limit), size, *line_rate / 1e9);
  };
  json.member("rows", false, [&](const JsonCursor& rows) { rows.each_item(read_row); });
  if (curves.empty()) throw std::runtime_error("has no figures by message size; expected bench net --json");
  return document;
}

struct Collective {
  struct Result {
    std::string plugin;
    double busbw = 0;
    PLUGFEST_FIELDS(plugin, figure(busbw))
  };
  struct Size {
    std::uint64_t bytes = 0;
    std::vector<Result> results;
    PLUGFEST_FIELDS(bytes, results)
  };
  std::string collective;
  std::string topology;
  std::string nic;
  std::vector<Size> sizes;
  PLUGFEST_FIELDS(collective, topology, nic, sizes)
};

Document read_collective(const JsonCursor& json) {
  Collective collective;
  read_json(json, collective);
  Document document;
  document.environment.topology = collective.topology;
  document.environment.nic = collective.nic;
  for (const Collective::Size& size : collective.sizes) {
    for (const Collective::Result& result : size.results) {
      add(document.curves,
          {.measure = "bus bandwidth of " + collective.collective,
           .unit = "GB/s",
           .subject = result.plugin.substr(result.plugin.rfind('/') + 1),
           .kind = Curve::Kind::kSubject,
           .points = {}},
          size.bytes, result.busbw);
    }
  }
  return document;
}

Document read_soak(const JsonCursor& json) {
  SoakRecord soak;
  Document document;
  read_json(json, soak);
  JsonReader(json).fields("topology, nic", document.environment.topology, document.environment.nic);
  document.curves = curves_of(soak);
  if (document.curves.empty()) throw std::runtime_error("has no rounds of plugfest soak");
  return document;
}

Document read_any(const JsonCursor& json) {
  if (json.has("series")) return read_soak(json);
  if (json.has("sizes") && json.has("collective")) return read_collective(json);
  return json.has("rows") && !json.has("runs") ? read_bench(json) : read_results_document(json);
}

Document parse(const std::string& text, Document (*read)(const JsonCursor&)) {
  try {
    // A file from another machine must not control the terminal.
    const auto safe = [](std::string_view part) { return printable(part, "\t\n"); };
    return read(JsonCursor(*wire::parse_json(text, safe)));
  } catch (const wire::JsonError& error) {
    throw std::runtime_error(fmt::format("not a results.json of plugfest: {}", error.what()));
  }
}

// Adds the path to errors.
Document parse_file(const std::string& path, Document (*read)(const JsonCursor&)) {
  const std::string content = read_file(path);
  try {
    return parse(content, read);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace

std::vector<CauseRecord> causes_of(const std::vector<RuleResult>& rules) {
  std::vector<CauseRecord> records;
  for (const CauseGroup& group : group_by_cause(rules)) {
    CauseRecord& record = records.emplace_back(CauseRecord{group.text, group.start->id, {}});
    for (const RuleResult* rule : group.rules) record.rules.push_back(rule->id);
  }
  return records;
}

std::vector<Curve> curves_of(const SoakRecord& soak) {
  std::vector<Curve> curves;
  for (const SoakRecord::Sample& sample : soak.series) {
    for (const SoakRecord::Held& held : sample.ranks) {
      const auto add_point = [&](const char* measure, const char* unit, double value) {
        add(curves,
            {.measure = measure, .unit = unit, .subject = held.rank, .axis = Curve::Axis::kMessages, .points = {}},
            sample.messages, value);
      };
      add_point("resident memory", "MiB", static_cast<double>(held.resident_bytes) / (1 << 20));
      add_point("descriptors", "descriptors", static_cast<double>(held.descriptors));
    }
  }
  return curves;
}

std::string to_json(const Document& document) {
  const std::shared_ptr<wire::Json> json = wire::new_json();
  wire::JsonWriter writer(*json);
  writer.fields("", wire::field::key("schema", kSchema));
  bool interrupted = document.stop_signal != 0;
  visit_results(writer, document, interrupted);
  return wire::json_text(*json);
}

std::string json_schema() {
  const std::shared_ptr<wire::Json> json = wire::new_json();
  const auto set_text = [&](const char* key, std::string_view text) { wire::set(wire::add_entry(*json, key), text); };
  set_text("$schema", "https://json-schema.org/draft/2020-12/schema");
  set_text("title", "results.json of plugfest");
  set_text("description", "docs/results.md describes the members. Times are seconds.");
  wire::SchemaWriter writer(*json);
  wire::set(wire::add_entry(wire::add_property(*json, "schema"), "const"), std::int64_t{kSchema});
  wire::require_member(*json, "schema");
  const Document document;
  bool interrupted = false;
  visit_results(writer, document, interrupted);
  return wire::json_text(*json);
}

Document read_document(const std::string& text) { return parse(text, read_results_document); }

Document read_results(const std::string& path) { return parse_file(path, read_results_document); }

Document read_results_or_curves(const std::string& path) { return parse_file(path, read_any); }

}  // namespace plugfest::report
