// Writes the HTML page: a shell, the files of this folder, and the documents as data.
#include "harness/report/formats.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "fabric/system/text.h"
#include "harness/report/text.h"
#include "harness/report/web/page_files.h"
#include "harness/wire/json.h"

namespace plugfest::report {
namespace {

// The base64 form of the bytes given by `digits`.
std::string base64_of_hex(std::string_view digits) {
  static constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bits_of = [](char c) { return static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char digit : digits) {
    bits = bits << 4 | bits_of(digit);
    count += 4;
    if (count < 6) continue;
    count -= 6;
    out += kAlphabet[bits >> count & 63];
  }
  if (count != 0) out += kAlphabet[bits << (6 - count) & 63];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

// JSON as the content of a script element, which ends at the first "</script" in any context. U+2028 and U+2029 need
// no escape: the text is parsed as JSON.
std::string for_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json)
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  return out;
}

std::string policy() {
  std::string scripts, styles;
  for (const PageFile& file : page_files()) {
    if (file.name.ends_with("LICENSE")) continue;
    (file.name.ends_with(".js") ? scripts : styles) += fmt::format(" 'sha256-{}'", base64_of_hex(file.sha256));
  }
  return fmt::format(
      "default-src 'none'; script-src{}; style-src{}; base-uri 'none'; form-action 'none'; "
      "require-trusted-types-for 'script'",
      scripts, styles);
}

// Applies PageLimits to copies of documents.
class Cutter {
 public:
  explicit Cutter(const PageLimits& limits) : limits_(limits) {}

  Document cut(Document document) {
    for (Run& run : document.runs)
      for (RuleResult& rule : run.rules) cut(rule);
    for (MutantResult& mutant : document.mutants) mutant.evidence.clear();
    if (document.pairs.size() > limits_.pairs) {
      notes_.push_back(fmt::format("left out: {}", counted(document.pairs.size() - limits_.pairs, "pair")));
      document.pairs.resize(limits_.pairs);
    }
    return document;
  }

  // The omissions, as text for users.
  std::vector<std::string> notes() const {
    std::vector<std::string> all = notes_;
    const auto add = [&](std::uint64_t count, std::string_view what) {
      if (count != 0) all.push_back(fmt::format("left out: {}", counted(count, what)));
    };
    add(calls_, "earlier call");
    add(packets_, "earlier packet");
    if (rules_ != 0) {
      all.push_back(fmt::format("left out of {}: calls, packets, log and output; the page holds at most {} MiB of them",
                                counted(rules_, "rule"), limits_.evidence_bytes >> 20));
    }
    return all;
  }

 private:
  template <typename Records>
  static std::uint64_t keep_last(Records& records, std::size_t max) {
    if (records.size() <= max) return 0;
    const std::size_t excess = records.size() - max;
    records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(excess));
    return excess;
  }

  void cut(RuleResult& rule) {
    std::size_t bytes = rule.message.size();
    for (RankRecord& rank : rule.ranks) {
      calls_ += keep_last(rank.calls, limits_.calls);
      bytes += rank.output.size();
      for (const std::string& line : rank.log) bytes += line.size();
      for (const std::string& line : rank.last_calls) bytes += line.size();
      for (const CallSpan& call : rank.calls) bytes += call.call.size() + call.result.size() + kRecordBytes;
    }
    if (rule.capture) {
      const std::uint64_t excess = keep_last(rule.capture->packets, limits_.packets);
      rule.capture->left_out += excess;
      packets_ += excess;
      bytes += rule.capture->packets.size() * kRecordBytes;
    }
    if (bytes_ + bytes > limits_.evidence_bytes) {
      ++rules_;
      rule.ranks.clear();
      rule.capture.reset();
      rule.message = shortened(rule.message, kMessageBytes);
      return;
    }
    bytes_ += bytes;
  }

  // Approximate size of the fields of a call or packet without the plugin's text.
  static constexpr std::size_t kRecordBytes = 100;
  static constexpr std::size_t kMessageBytes = 1000;

  const PageLimits& limits_;
  std::size_t bytes_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t packets_ = 0;
  std::size_t rules_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

std::string to_html(std::span<const Document> documents, const PageLimits& limits) {
  Cutter cutter(limits);
  std::string data;
  for (const Document& document : documents) data += (data.empty() ? "" : ",") + to_json(cutter.cut(document));
  std::string notes;
  for (const std::string& note : cutter.notes()) notes += (notes.empty() ? "" : ",") + wire::json_string(note);
  std::string title = "plugfest report";
  if (!documents.empty() && !documents.front().runs.empty())
    title = fmt::format("{}: plugfest report", documents.front().runs.front().plugin_name);
  if (!documents.empty() && documents.front().certification)
    title = fmt::format("{}: plugfest certification", documents.front().certification->plugin);
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n",
      policy(), escaped(title));
  std::string scripts;
  for (const PageFile& file : page_files())
    if (file.name.ends_with("LICENSE"))
      out += fmt::format("<!--\n{}-->\n", file.content);
    else if (file.name.ends_with(".js"))
      scripts += fmt::format("<script>{}</script>\n", file.content);
    else
      out += fmt::format("<style>{}</style>\n", file.content);
  return out + fmt::format(
                   "</head>\n<body>\n<noscript>This page needs JavaScript, which it contains. The data below is from "
                   "results.json.</noscript>\n<script type=\"application/json\" id=\"data\">"
                   "{{\"notes\":[{}],\"documents\":[{}]}}</script>\n{}</body>\n</html>\n",
                   for_script(notes), for_script(data), scripts);
}

std::string to_html(std::span<const Document> documents) { return to_html(documents, PageLimits()); }

}  // namespace plugfest::report
