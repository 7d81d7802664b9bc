#include "harness/report/text.h"

#include <algorithm>
#include <sstream>

namespace plugfest::report {
namespace {

// Length of the UTF-8 sequence at the start of `text`; 0 if the sequence is invalid, or is a control character (U+0080
// to U+009F) or no character (U+FFFE, U+FFFF), which terminals and XML parsers do not treat as text.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 && first <= 0xf4  ? 4
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xc2 && first < 0xe0 ? 2
                                                             : 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool beyond = (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  const bool control = first == 0xc2 && byte(1) < 0xa0;
  const bool none = first == 0xef && byte(1) == 0xbf && byte(2) >= 0xbe;
  return overlong || beyond || control || none ? 0 : length;
}

}  // namespace

std::string painted(std::string_view color, std::string_view text) {
  return "\033[" + std::string(color) + "m" + std::string(text) + "\033[0m";
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool control = (first < 0x20 || first == 0x7f) && kept.find(text.front()) == std::string_view::npos;
    safe += length == 0 || control ? "?" : text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return safe;
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = indent;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const std::size_t length = columns(word);
    if (column > indent && column + 1 + length > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += length;
  }
  return out;
}

std::string nic_text(const NicRecord& nic) {
  const auto& [interface, counters] = nic;
  std::string text = "NIC " + interface;
  for (const auto& [name, count] : counters) {
    text += text.find(':') == std::string::npos ? ": " : ", ";
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += words + " " + std::to_string(count);
  }
  return text;
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0)
      out += '?';
    else if (length > 1)
      out += text.substr(0, length);
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\n')
      out += "&#10;";
    else
      out += static_cast<unsigned char>(c) >= 0x20 || c == '\t' ? c : '?';
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace plugfest::report
