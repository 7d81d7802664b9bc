#include "harness/report/text.h"

#include <algorithm>
#include <sstream>

namespace plugfest::report {

std::string printable(std::string_view text, std::string_view kept) {
  std::string safe(text);
  for (char& c : safe) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 || byte == 0x7f) && kept.find(c) == std::string_view::npos) c = '?';
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
  std::string text = "NIC " + nic.interface;
  for (const auto& [name, count] : nic.counters) {
    text += text.find(':') == std::string::npos ? ": " : ", ";
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += words + " " + std::to_string(count);
  }
  return text;
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

}  // namespace plugfest::report
