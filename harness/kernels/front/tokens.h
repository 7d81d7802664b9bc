// Splits preprocessed C++ into tokens.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::kernels::front {

/// Text that the front cannot compile. The message begins with "FILE:LINE: ".
class SourceError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Kind { kIdentifier, kNumber, kString, kCharacter, kPunctuation };

struct Token {
  Kind kind;
  std::string_view text;
  std::size_t offset = 0;  ///< of its first byte
  std::size_t file = 0;    ///< index in Tokens::files
  int line = 0;
  bool system = false;  ///< in a header of the system, by the flag of its line marker

  bool is(std::string_view word) const { return text == word && kind != Kind::kString && kind != Kind::kCharacter; }
  std::size_t end() const { return offset + text.size(); }
};

/// A line that begins with #, but is not a line marker.
struct Directive {
  std::string_view text;
  std::size_t offset = 0;
};

struct Tokens {
  std::vector<Token> list;
  std::vector<Directive> directives;
  std::vector<std::string> files;

  /// "FILE:LINE".
  std::string place(const Token& token) const;
  /// Throws a SourceError at the place of token `i`, or of the last token.
  [[noreturn]] void fail(std::size_t i, const std::string& what) const;
  /// Whether token `i` exists and is `word`.
  bool is(std::size_t i, std::string_view word) const;
  /// The token that closes the (, [ or { at `i`. Errors: SourceError if there is none.
  std::size_t closing(std::size_t i) const;
  /// The token that opens the ), ] or } at `i`. Errors: SourceError if there is none.
  std::size_t opening(std::size_t i) const;
};

/// Reads the output of `g++ -E`. The tokens refer to `text`. "<<<" and ">>>" are one token each.
/// Errors: SourceError for a string, character or comment without end.
Tokens tokenize(std::string_view text);

/// The text between the quotes of a string token, whose escapes \n and \t are read. Of other escapes it keeps the
/// character after the backslash.
std::string string_value(std::string_view token);

}  // namespace plugfest::kernels::front
