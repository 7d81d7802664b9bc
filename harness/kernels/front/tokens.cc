#include "harness/kernels/front/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace plugfest::kernels::front {
namespace {

bool begins_identifier(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 128;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool continues_identifier(char c) { return begins_identifier(c) || is_digit(c); }

// Longer ones first. Others have one character.
constexpr std::array<std::string_view, 24> kPunctuation = {"<<<", ">>>", "<<=", ">>=", "->*", "...", "<<", ">>",
                                                           "::",  "->",  "<=",  ">=",  "==",  "!=",  "&&", "||",
                                                           "++",  "--",  "+=",  "-=",  "*=",  "/=",  "|=", "##"};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { tokens_.files.emplace_back("<input>"); }

  Tokens run() {
    bool at_line_start = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        at_line_start = true;
        ++at_;
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        ++at_;
      } else if (c == '#' && at_line_start) {
        directive();
      } else {
        at_line_start = false;
        token();
      }
    }
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw SourceError(fmt::format("{}:{}: {}", tokens_.files[file_], line_, what));
  }
  bool ahead(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  // A line marker, `# 12 "file.cu" 1 3`, or another directive.
  void directive() {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view line = text_.substr(at_, end - at_);
    std::size_t at = 1;
    while (at < line.size() && line[at] == ' ') ++at;
    if (at < line.size() && is_digit(line[at]))
      marker(line.substr(at));
    else
      tokens_.directives.push_back({line, at_});
    at_ = end;
  }

  void marker(std::string_view line) {
    int number = 0;
    std::size_t at = 0;
    for (; at < line.size() && is_digit(line[at]); ++at)
      number = number < 100'000'000 ? number * 10 + line[at] - '0' : 0;
    line_ = number - 1;  // the end of this line adds one
    const std::size_t open = line.find('"', at), close = line.rfind('"');
    if (open == line.npos || close == open) return;
    const std::string name(line.substr(open + 1, close - open - 1));
    system_ = line.substr(close + 1).find('3') != line.npos;
    const auto known = std::find(tokens_.files.begin(), tokens_.files.end(), name);
    file_ = static_cast<std::size_t>(known - tokens_.files.begin());
    if (known == tokens_.files.end()) tokens_.files.push_back(name);
  }

  void token() {
    const std::size_t begin = at_;
    const int line = line_;
    if (ahead("//") || ahead("/*")) return comment();
    const Kind kind = read();
    tokens_.list.push_back({kind, text_.substr(begin, at_ - begin), begin, file_, line, system_});
  }

  // Reads one token from at_.
  Kind read() {
    const char c = text_[at_];
    if (begins_identifier(c)) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && continues_identifier(text_[at_])) ++at_;
      const std::string_view word = text_.substr(begin, at_ - begin);
      const bool is_prefix = word == "L" || word == "u" || word == "U" || word == "u8";
      if (at_ < text_.size() && text_[at_] == '"') {
        if (word == "R" || (word.ends_with('R') && word.size() <= 3)) return raw_string();
        if (is_prefix) return quoted('"', Kind::kString);
      }
      if (is_prefix && at_ < text_.size() && text_[at_] == '\'') return quoted('\'', Kind::kCharacter);
      return Kind::kIdentifier;
    }
    if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) return number();
    if (c == '"') return quoted('"', Kind::kString);
    if (c == '\'') return quoted('\'', Kind::kCharacter);
    for (const std::string_view word : kPunctuation) {
      if (!ahead(word)) continue;
      at_ += word.size();
      return Kind::kPunctuation;
    }
    ++at_;
    return Kind::kPunctuation;
  }

  void comment() {
    if (ahead("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return;
    }
    const std::size_t end = text_.find("*/", at_ + 2);
    if (end == text_.npos) fail("this comment has no end");
    advance_to(end + 2);
  }

  // 1'000, 0x1p-3f, 1e+5.
  Kind number() {
    while (at_ < text_.size()) {
      const char c = text_[at_], before = at_ > 0 ? text_[at_ - 1] : '\0';
      const bool is_sign = (c == '+' || c == '-') && std::string_view("eEpP").find(before) != std::string_view::npos;
      const bool is_separator = c == '\'' && at_ + 1 < text_.size() && continues_identifier(text_[at_ + 1]);
      if (!continues_identifier(c) && c != '.' && !is_sign && !is_separator) break;
      ++at_;
    }
    return Kind::kNumber;
  }

  Kind quoted(char quote, Kind kind) {
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\') ++at_;
      if (at_ >= text_.size() || text_[at_] == '\n') break;
    }
    if (at_ >= text_.size() || text_[at_] == '\n') fail("this string or character has no end");
    ++at_;
    return kind;
  }

  Kind raw_string() {
    const std::size_t open = text_.find('(', at_);
    if (open == text_.npos || open - at_ > 17) fail("this raw string has no (");
    const std::string end = fmt::format("){}\"", text_.substr(at_ + 1, open - at_ - 1));
    const std::size_t close = text_.find(end, open);
    if (close == text_.npos) fail("this raw string has no end");
    advance_to(close + end.size());
    return Kind::kString;
  }

  void advance_to(std::size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t file_ = 0;
  int line_ = 1;
  bool system_ = false;
  Tokens tokens_;
};

}  // namespace

std::string Tokens::place(const Token& token) const { return fmt::format("{}:{}", files[token.file], token.line); }

void Tokens::fail(std::size_t i, const std::string& what) const {
  throw SourceError(fmt::format("{}: {}", place(list[std::min(i, list.size() - 1)]), what));
}

bool Tokens::is(std::size_t i, std::string_view word) const { return i < list.size() && list[i].is(word); }

std::size_t Tokens::closing(std::size_t i) const {
  int depth = 0;
  for (std::size_t at = i; at < list.size(); ++at) {
    if (is(at, "(") || is(at, "[") || is(at, "{")) ++depth;
    if (is(at, ")") || is(at, "]") || is(at, "}")) --depth;
    if (depth == 0) return at;
  }
  fail(i, fmt::format("this {} is not closed", list[i].text));
}

std::size_t Tokens::opening(std::size_t i) const {
  int depth = 0;
  for (std::size_t at = i + 1; at-- > 0;) {
    if (is(at, ")") || is(at, "]") || is(at, "}")) ++depth;
    if (is(at, "(") || is(at, "[") || is(at, "{")) --depth;
    if (depth == 0) return at;
  }
  fail(i, fmt::format("this {} was not opened", list[i].text));
}

Tokens tokenize(std::string_view text) { return Lexer(text).run(); }

std::string string_value(std::string_view token) {
  const std::size_t open = token.find('"');
  if (open > 0 && token[open - 1] == 'R') {
    const std::size_t begin = token.find('(', open);
    return std::string(token.substr(begin + 1, token.size() - 2 * (begin - open) - 2 - open));
  }
  token = token.substr(open + 1, token.size() - open - 2);
  std::string result;
  for (std::size_t i = 0; i < token.size(); ++i)
    if (token[i] != '\\' || i + 1 == token.size())
      result += token[i];
    else if (const char c = token[++i]; c == 'n' || c == 't')
      result += c == 'n' ? '\n' : '\t';
    else
      result += c;
  return result;
}

}  // namespace plugfest::kernels::front
